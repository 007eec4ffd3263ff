package chart

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// The protocol of the pipe between a Renderer and its child process: each message is four bytes of length and JSON.
// The parent sends one job, the child says that it has it, asks as many questions as its templates do, each of which is
// answered before it asks the next, and ends with what came out. The pipe's end ends the child.

// toChild is a message of the parent; one of the fields is set.
type toChild struct {
	Job    *job    `json:"job,omitempty"`
	Answer *answer `json:"answer,omitempty"`
}

// fromChild is a message of the child; one of the fields is set.
type fromChild struct {
	Accepted bool      `json:"accepted,omitempty"`
	Question *question `json:"question,omitempty"`
	Done     *done     `json:"done,omitempty"`
}

// answer is what the parent found; Failed ends the rendering (the parent knows why).
type answer struct {
	Object json.RawMessage `json:"object,omitempty"`
	Failed bool            `json:"failed,omitempty"`
}

// done is the end of a rendering.
type done struct {
	Objects  []json.RawMessage `json:"objects,omitempty"`
	CRDs     []json.RawMessage `json:"crds,omitempty"`
	Warnings []string          `json:"warnings,omitempty"`
	Failure  *failure          `json:"failure,omitempty"`
}

var errTooLong = errors.New("message is too long")

func send(w io.Writer, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(text) > maxMessage {
		return errTooLong
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text))) //nolint:gosec // checked above
	_, err = w.Write(append(frame, text...))
	return err
}

// maxMessage bounds every message, in bytes; the limits of a rendering are below it.
const maxMessage = 1 << 30

// receive reads one message of at most limit bytes. The end of the pipe between two messages is io.EOF.
func receive(r io.Reader, limit int64, message any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	if size > limit {
		return errTooLong
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	if err := json.Unmarshal(text, message); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	return nil
}

// output decodes what the child rendered; whole numbers stay whole.
func (d *done) output() (*output, error) {
	if d.Failure != nil {
		return nil, d.Failure.err()
	}
	objects, err := decode(d.Objects)
	if err != nil {
		return nil, err
	}
	crds, err := decode(d.CRDs)
	if err != nil {
		return nil, err
	}
	return &output{Objects: objects, CRDs: crds, Warnings: d.Warnings}, nil
}

func decode(texts []json.RawMessage) ([]*unstructured.Unstructured, error) {
	objects := make([]*unstructured.Unstructured, 0, len(texts))
	for _, text := range texts {
		var fields map[string]any
		if err := utiljson.Unmarshal(text, &fields); err != nil {
			return nil, fmt.Errorf("decode object: %w", err)
		}
		objects = append(objects, &unstructured.Unstructured{Object: fields})
	}
	return objects, nil
}
