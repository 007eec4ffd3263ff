package chart

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// childMark is the hidden command under which this program is a rendering process.
const childMark = "__reconciler-render-chart"

// childReady says that main called RenderChild, so that this program can be started as a rendering process.
//
//nolint:gochecknoglobals // it says something about the process, and main has no other way to say it
var childReady atomic.Bool

// RenderChild makes the program able to render charts in child processes of itself: call it as the first thing in main
// (and in TestMain). In such a child process it does not return; everywhere else it returns at once.
func RenderChild() {
	if len(os.Args) != 3 || os.Args[1] != childMark {
		childReady.Store(true)
		return
	}
	limit, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil {
		os.Exit(2) //nolint:forbidigo // this is the whole life of a child process
	}
	os.Exit(serve(os.Stdin, os.Stdout, limit)) //nolint:forbidigo // this is the whole life of a child process
}

// serve renders one chart; the result is the process's exit code.
func serve(in io.Reader, out io.Writer, limit int64) int {
	signal.Ignore(os.Interrupt) // a Ctrl-C is for the parent, which ends this process when it wants to
	os.Stdout = os.Stderr       // the pipe is for messages alone
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(200)
	debug.SetMemoryLimit(limit / 4 * 3)
	limitMemory(limit)

	// The parent's end of the pipe is watched all the time: a child never outlives its parent, whatever it renders.
	messages := make(chan toChild)
	go func() {
		reader := bufio.NewReader(in)
		for {
			var message toChild
			if err := receive(reader, maxMessage, &message); err != nil {
				os.Exit(1) //nolint:forbidigo // the parent is gone
			}
			messages <- message
		}
	}()

	first := <-messages
	if first.Job == nil || send(out, fromChild{Accepted: true}) != nil {
		return 1
	}
	j := *first.Job
	var ask asker
	if j.Lookups {
		ask = func(q question) (map[string]any, error) { return askParent(out, messages, q) }
	}
	if send(out, fromChild{Done: finish(j, ask)}) != nil {
		return 1
	}
	return 0
}

// finish renders and packs up what came out.
func finish(j job, ask asker) *done {
	rendered, err := render(j, ask)
	if err != nil {
		return &done{Failure: newFailure(err, j.Values)}
	}
	var size int64
	d := &done{Warnings: rendered.Warnings}
	if d.Objects, err = encode(rendered.Objects, &size, j.OutputLimit); err == nil {
		d.CRDs, err = encode(rendered.CRDs, &size, j.OutputLimit)
	}
	if err != nil {
		return &done{Failure: newFailure(err, j.Values)}
	}
	return d
}

func askParent(out io.Writer, messages <-chan toChild, q question) (map[string]any, error) {
	if err := send(out, fromChild{Question: &q}); err != nil {
		return nil, err
	}
	reply := (<-messages).Answer
	if reply == nil || reply.Failed {
		return nil, errors.New("lookup failed")
	}
	if len(reply.Object) == 0 {
		return nil, nil
	}
	var object map[string]any
	if err := utiljson.Unmarshal(reply.Object, &object); err != nil {
		return nil, err
	}
	return object, nil
}

var _ json.Unmarshaler = (*job)(nil)

// UnmarshalJSON keeps the digits of numbers.
func (j *job) UnmarshalJSON(text []byte) error {
	type plain job
	var raw struct {
		plain
		Values json.RawMessage `json:"values"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*j = job(raw.plain)
	if len(raw.Values) == 0 {
		return nil
	}
	values, err := decodeJSON(raw.Values)
	if err != nil {
		return err
	}
	j.Values, _ = values.(map[string]any)
	return nil
}
