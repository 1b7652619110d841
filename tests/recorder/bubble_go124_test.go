//go:build !go1.25

// Go 1.24 has bubbles as an experiment, under another name: build with GOEXPERIMENT=synctest. They want the timers of Go 1.23, and
// without modules the default is older.

//go:debug asynctimerchan=0

package recorder

import (
	"testing"
	"testing/synctest"
)

func bubble(t *testing.T, f func(*testing.T)) { synctest.Run(func() { f(t) }) }

func rest() { synctest.Wait() }
