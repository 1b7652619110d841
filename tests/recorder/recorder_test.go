// The recorder of the traces in tests/data: it makes the calls of each line on the real packages, client-go's queue among them, and
// writes the line anew, with the answers that it got.
//
// It is a Go test because testing/synctest wants one. ci/traces.sh builds it, runs it, and compares the two folders:
//
//	recorder.test -from tests/data -to /tmp/anew
//
// The packages are used as they are, through what they export: their time is a fake clock's, and their metrics go to a provider. What is
// written does not depend on the answers that a line has, except for samples of random numbers. So a line may also have none yet.
package recorder

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

var (
	from = flag.String("from", "", "the folder with the lines to be called")
	to   = flag.String("to", "", "the folder to write, which may be the same")
)

// families are the files, and how the calls of a line are made.
var families = map[string]func(*testing.T, *trace){
	"fifo":                 inBubble(fifo),
	"delaying":             inBubble(delaying),
	"rate_limiting":        inBubble(rateLimiting),
	"rate_limiting_bucket": inBubble(rateLimiting),
	"metrics":              inBubble(measured),
	"limiters":             limiters,
	"bucket":               bucket,
	"backoff":              backoffs,
}

// trace is a line. The page tests/data/README.md says what it means.
type trace struct {
	ID      string          `json:"id"`
	Seed    json.RawMessage `json:"seed,omitempty"`
	Quirk   string          `json:"quirk,omitempty"`
	QuirkAt []int           `json:"quirk_at,omitempty"`
	Config  json.RawMessage `json:"config"`
	Ops     []*call         `json:"ops"`
}

// call is a name, its arguments and the answers. How many of the elements are arguments is found by reading them.
type call struct {
	name    string
	list    []json.RawMessage
	read    int // the elements that are the name and the arguments
	answers []any
}

func (c *call) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &c.list); err != nil {
		return err
	}
	if len(c.list) == 0 {
		return fmt.Errorf("a call without a name")
	}
	c.read = 1
	return json.Unmarshal(c.list[0], &c.name)
}

func (c *call) MarshalJSON() ([]byte, error) {
	var list []any
	for _, argument := range c.list[:c.read] {
		list = append(list, argument)
	}
	return json.Marshal(append(list, c.answers...))
}

// difference says what the call answers now, if the line has other answers.
func (c *call) difference() string {
	text, _ := json.Marshal(c)
	if recorded, _ := json.Marshal(c.list); len(c.list) > c.read && !bytes.Equal(recorded, text) {
		return fmt.Sprintf("%s is now %s", recorded, text)
	}
	return ""
}

// argument reads the next argument of a call.
func argument[T any](t *testing.T, c *call) (value T) {
	t.Helper()
	if c.read == len(c.list) {
		t.Fatalf("%s wants more arguments", c.name)
	}
	if err := json.Unmarshal(c.list[c.read], &value); err != nil {
		t.Fatalf("%s: argument %s: %v", c.name, c.list[c.read], err)
	}
	c.read++
	return value
}

// config reads the configuration of a line, all fields of which must be known.
func config[T any](t *testing.T, trace *trace) (value T) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(trace.Config))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("config: %v", err)
	}
	return value
}

// mark says at which calls the original is wrong.
func (t *trace) mark(at []int) {
	t.QuirkAt = at
	switch {
	case len(at) == 0:
		t.Quirk = ""
	case t.Quirk == "":
		t.Quirk = "negative_delay"
	}
}

func TestRecord(t *testing.T) {
	if *from == "" || *to == "" {
		t.Skip("run ci/traces.sh")
	}
	files, err := filepath.Glob(filepath.Join(*from, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s", *from)
	}
	var traces, calls int
	for _, file := range files {
		family := filepath.Base(file[:len(file)-len(".jsonl")])
		replay := families[family]
		if replay == nil {
			t.Fatalf("%s: not a family that is known", file)
		}
		var written bytes.Buffer
		var ids []string
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for number, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
			trace := new(trace)
			if err := json.Unmarshal(line, trace); err != nil {
				t.Fatalf("%s, line %d: %v", file, number+1, err)
			}
			if slices.Contains(ids, trace.ID) {
				t.Fatalf("%s, line %d: a second %q", file, number+1, trace.ID)
			}
			ids = append(ids, trace.ID)
			// A line at fault ends its own test, and the others are still called.
			if !t.Run(trace.ID, func(t *testing.T) { replay(t, trace) }) {
				continue
			}
			text, err := json.Marshal(trace)
			if err != nil {
				t.Fatalf("%s: %v", trace.ID, err)
			}
			written.Write(append(text, '\n'))
			for at, c := range trace.Ops {
				if difference := c.difference(); difference != "" {
					fmt.Printf("%s, call %d: %s\n", trace.ID, at, difference)
					break
				}
			}
			traces++
			calls += len(trace.Ops)
		}
		if t.Failed() {
			continue // and write nothing
		}
		if err := os.WriteFile(filepath.Join(*to, filepath.Base(file)), written.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("%d traces, %d calls, %s %s/%s\n", traces, calls, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
