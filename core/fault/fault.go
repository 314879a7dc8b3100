// Package fault holds the one error type that crosses the C boundary: a code for programs, a message that names what
// was being done and the offending input, and a hint that says what to do next.
package fault

import (
	"context"
	"errors"
	"fmt"
)

// Code names a class of error. Python maps each code to one exception class (python/asrconfig_go/_base/errors.py).
type Code string

const (
	InvalidArgument  Code = "invalid_argument"  // a value of the right type outside its range, or of the wrong type
	NotFound         Code = "not_found"         // a file, folder, name or handle that does not exist
	Unsupported      Code = "unsupported"       // understood, but not something this version handles
	Corrupt          Code = "corrupt"           // a file that breaks its own format
	Storage          Code = "storage"           // a disk or a mount that does not answer
	EmptyDataset     Code = "empty_dataset"     // nothing usable to plan from
	Infeasible       Code = "infeasible"        // no configuration fits the hardware
	Cancelled        Code = "cancelled"         // stopped at the caller's request
	UnknownOperation Code = "unknown_operation" // no such row in the operation table
	VersionMismatch  Code = "version_mismatch"  // written by, or meant for, another version
	Poisoned         Code = "poisoned"          // an earlier panic; the library refuses further work
	Internal         Code = "internal"          // a defect of this library
)

// Error is a failure that a person can act on.
type Error struct {
	Code    Code
	Message string
	Hint    string
	cause   error
}

// New makes an Error. The hint may be empty when the message already says what to do.
func New(code Code, hint, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Wrap makes an Error out of a lower one and keeps it for errors.Is and errors.As.
// The message becomes "<formatted>: <cause>".
func Wrap(cause error, code Code, hint, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...) + ": " + cause.Error(), Hint: hint, cause: cause}
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives the cause, nil when there is none.
func (e *Error) Unwrap() error { return e.cause }

// Is says whether the Error inside err has the code.
func Is(err error, code Code) bool {
	var known *Error
	return errors.As(err, &known) && known.Code == code
}

// From gives the Error inside err. An error of another type becomes Cancelled when it is a context's, else Internal.
func From(err error) *Error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Wrap(err, Cancelled, "", "stopped")
	default:
		return Wrap(err, Internal, "please report this as a defect, with the call that led to it", "unexpected error")
	}
}
