package media

import (
	"errors"
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// reason is why a file cannot be used, without its name.
type reason struct {
	code fault.Code
	hint string
	err  error
}

func (r *reason) Error() string { return r.err.Error() }
func (r *reason) Unwrap() error { return r.err }

// Refused is the error of a file that cannot be used, without its name.
func Refused(code fault.Code, hint, format string, args ...any) error {
	return &reason{code: code, hint: hint, err: fmt.Errorf(format, args...)}
}

// Corrupt is the error of a file that breaks its format or holds no audio.
func Corrupt(format string, args ...any) error {
	return Refused(fault.Corrupt, "recreate the file, or leave it out", format, args...)
}

// Unsupported is the error of a format or codec that is not read.
func Unsupported(format string, args ...any) error {
	return Refused(fault.Unsupported, "convert it: ffmpeg -i INPUT OUTPUT.flac", format, args...)
}

// Named puts the file's name in front: the fault that callers see. errors.Unwrap returns the bare
// reason.
func Named(name string, err error) error {
	var r *reason
	if !errors.As(err, &r) {
		return fault.From(err)
	}
	return fault.Wrap(err, r.code, r.hint, "%s", fault.Printable(name))
}
