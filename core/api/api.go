// Package api is everything that the library can do, as JSON operations: one envelope, strict
// decoding, and one table from operation name to function (table.go). It never panics and never
// returns anything but an answer.
package api

import (
	"bytes"
	"runtime"
	"sync"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/jsontext"
)

// EnvelopeVersion is the "v" of requests and answers.
const EnvelopeVersion = 1

// Version is the package's version; the build sets it (-ldflags -X).
var Version = "0.0.0+unset"

// BuildInfo is version, Go version and platform on one line.
func BuildInfo() string {
	return "asrconfig-go " + Version + " (" + runtime.Version() + ", " + runtime.GOOS + "/" +
		runtime.GOARCH + ")"
}

type request struct {
	V    int             `json:"v"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args"`
}

type answer struct {
	V      int        `json:"v"`
	OK     bool       `json:"ok"`
	Result any        `json:"result,omitempty"`
	Error  *errorBody `json:"error,omitempty"`
}

type errorBody struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	Hint    string     `json:"hint"`
}

// Call runs one request and gives the answer's bytes. Either may carry bytes that are no JSON,
// behind a zero byte: JSON has none, and many paths or numbers cross faster as they are. A panic
// becomes a "poisoned" answer, as do all calls after it: state that a panic left half changed is
// not to be trusted.
func Call(raw []byte) []byte { return CallInto(raw, func(n int) []byte { return make([]byte, n) }) }

// CallInto is Call with the answer in memory of the caller: n bytes, all of which it fills.
func CallInto(raw []byte, memory func(n int) []byte) (out []byte) {
	defer func() {
		if r := recover(); r != nil {
			out = encode(nil, fault.Poison("operation", r), memory)
		}
	}()
	if err := fault.PoisonError(); err != nil {
		return encode(nil, err, memory)
	}
	result, err := dispatch(raw)
	return encode(result, err, memory)
}

func dispatch(raw []byte) (any, error) {
	var req request
	text, attached, _ := bytes.Cut(raw, []byte{0})
	err := jsontext.Check(text)
	if err == nil {
		err = jsontext.Decode(text, &req)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidArgument, `send {"v":1,"op":"…","args":{…}}`,
			"reading the request")
	}
	if req.V != EnvelopeVersion {
		return nil, fault.New(fault.VersionMismatch,
			"the Python package and its library come from different versions: reinstall "+
				"asrconfig-go",
			"request version %d, this library reads %d", req.V, EnvelopeVersion)
	}
	op, ok := table[req.Op]
	if !ok {
		return nil, fault.New(fault.UnknownOperation,
			"reinstall asrconfig-go so that package and library match", "unknown operation %q",
			req.Op)
	}
	if len(req.Args) == 0 {
		req.Args = json.RawMessage("{}")
	}
	return op.run(req.Args, attached)
}

// attachment is a result with bytes after its JSON, written where the answer goes: there may be
// many.
type attachment[R any] struct {
	result R
	size   int
	write  func(to []byte)
}

type attached interface {
	parts() (result any, size int, write func(to []byte))
}

func (a attachment[R]) parts() (any, int, func(to []byte)) { return a.result, a.size, a.write }

func encode(result any, err error, memory func(n int) []byte) []byte {
	a, is := result.(attached)
	if !is || err != nil {
		text := marshal(result, err)
		out := memory(len(text))
		copy(out, text)
		return out
	}
	plain, size, write := a.parts()
	text := append(marshal(plain, nil), 0)
	out := memory(len(text) + size)
	write(out[copy(out, text):])
	return out
}

func marshal(result any, err error) []byte {
	a := answer{V: EnvelopeVersion, OK: err == nil, Result: result}
	if err != nil {
		f := fault.From(err)
		a.Result, a.Error = nil, &errorBody{Code: f.Code, Message: f.Message, Hint: f.Hint}
	}
	out, failed := json.Marshal(a)
	if failed != nil { // a NaN in a result, say: a defect, but the caller still gets an answer
		return marshal(nil, fault.Wrap(failed, fault.Internal, "please report this as a defect",
			"writing the answer"))
	}
	return out
}

// registry hands out handles for things that live longer than a call. Handles are never reused and
// 0 is never one. The zero registry is ready to use.
type registry[T any] struct {
	mu   sync.RWMutex
	last uint64
	held map[uint64]T
}

func (r *registry[T]) add(v T) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = map[uint64]T{}
	}
	r.last++
	r.held[r.last] = v
	return r.last
}

func (r *registry[T]) find(handle uint64) (T, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	v, ok := r.held[handle]
	return v, ok
}

// get is find with an error that names the kind of thing.
func (r *registry[T]) get(handle uint64, kind string) (T, error) {
	v, ok := r.find(handle)
	if !ok {
		return v, fault.New(fault.NotFound, "it was released, or never started",
			"no %s has the handle %d", kind, handle)
	}
	return v, nil
}

func (r *registry[T]) remove(handle uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, handle)
}
