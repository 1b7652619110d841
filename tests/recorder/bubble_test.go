//go:build go1.25

package recorder

import (
	"testing"
	"testing/synctest"
)

func bubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }

// rest waits until every other goroutine of the bubble is blocked.
func rest() { synctest.Wait() }
