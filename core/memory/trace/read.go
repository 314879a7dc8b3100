package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/jsontext"
	"github.com/asrconfig/asrconfig-go/core/parallel"
)

const (
	maxFile     = 256 << 20 // bytes of a trace file; a model of 1 B parameters takes about 1 MB
	maxUnpacked = 512 << 20 // bytes of its JSON
)

// file is the JSON inside the gzip.
type file struct {
	header
	Trace
}

type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
}

// ReadFile reads and checks a trace file.
func ReadFile(path string) (*Trace, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	return decode(data, fmt.Sprintf("trace %q", path))
}

// Decode reads and checks the content of a trace file.
func Decode(data []byte) (*Trace, error) { return decode(data, "trace") }

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.Wrap(err, fault.NotFound, "check the path, or record the trace again",
			"reading a trace")
	case err != nil:
		return nil, fault.Wrap(err, fault.InvalidArgument, "check the path and its permissions",
			"reading a trace")
	case !info.Mode().IsRegular():
		return nil, fault.New(fault.InvalidArgument, "pass the path of a trace file",
			"trace %q is not a file", path)
	case info.Size() > maxFile:
		return nil, tooBig(fmt.Sprintf("trace %q", path), "its size of %d MiB", info.Size()>>20)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidArgument, "check the path and its permissions",
			"reading a trace")
	}
	return data, nil
}

func decode(data []byte, label string) (*Trace, error) {
	if len(data) > maxFile {
		return nil, tooBig(label, "its size of %d MiB", len(data)>>20)
	}
	raw, err := unpack(data, label, maxUnpacked)
	if err != nil {
		return nil, err
	}
	var f file
	err = parallel.Do(2, func(i int) error {
		if i == 0 {
			return jsontext.Check(raw)
		}
		return jsontext.Decode(raw, &f)
	})
	// a file of a newer version may have fields that this one does not know
	if err == nil || json.Unmarshal(raw, &f.header) == nil {
		if wrong := f.header.check(label); wrong != nil {
			return nil, wrong
		}
	}
	if err == nil {
		err = f.Trace.check()
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Corrupt, recordAgain, "%s", label)
	}
	return &f.Trace, nil
}

func unpack(data []byte, label string, limit int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fault.Wrap(err, fault.Corrupt, recordAgain, "%s is not a gzip file", label)
	}
	raw, err := io.ReadAll(io.LimitReader(z, limit+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Corrupt, recordAgain, "%s ends early or is damaged",
			label)
	}
	if int64(len(raw)) > limit {
		return nil, tooBig(label, "more than %d MiB unpacked", limit>>20)
	}
	return raw, nil
}

func (h header) check(label string) error {
	version := h.Version
	switch {
	case h.Format != FormatName:
		return fault.New(fault.Corrupt, recordAgain, "%s: its format is %q, not %q", label,
			fault.Shorten(h.Format), FormatName)
	case version > FormatVersion:
		return fault.New(fault.VersionMismatch,
			"install a newer asrconfig-go, or record the trace with this one",
			"%s has version %d; this library reads version %d", label, version, FormatVersion)
	case version < 1:
		return fault.New(fault.Corrupt, recordAgain, "%s: version %d", label, version)
	case version < FormatVersion:
		return fault.New(fault.VersionMismatch, recordAgain,
			"%s has version %d, without what operations compute; this library reads version %d",
			label, version, FormatVersion)
	}
	return nil
}

const recordAgain = "record the trace again"

func tooBig(label, format string, args ...any) error {
	return fault.New(fault.Unsupported, "trace fewer shapes, or a model of fewer layers", "%s: "+
		format+" is more than this library reads",
		append([]any{label}, args...)...)
}
