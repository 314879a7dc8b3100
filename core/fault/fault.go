// Package fault holds the one error type that crosses the C boundary: a code for programs, a
// message that names what was being done and the offending input, and a hint that says what to do
// next. With it come the helpers that messages are written with, and the state of a library that
// has panicked.
package fault

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// Code names a class of error. Python maps each code to one exception class
// (python/asrconfig_go/errors.py).
type Code string

const (
	// a value of the right type outside its range, or of the wrong type
	InvalidArgument Code = "invalid_argument"
	// a file, folder, name or handle that does not exist
	NotFound Code = "not_found"
	// understood, but not something this version handles
	Unsupported      Code = "unsupported"
	Corrupt          Code = "corrupt"           // a file that breaks its own format
	Storage          Code = "storage"           // a disk or a mount that does not answer
	EmptyDataset     Code = "empty_dataset"     // nothing usable to plan from
	Infeasible       Code = "infeasible"        // no configuration fits the hardware
	Cancelled        Code = "cancelled"         // stopped at the caller's request
	UnknownOperation Code = "unknown_operation" // no such row in the operation table
	VersionMismatch  Code = "version_mismatch"  // written by, or meant for, another version
	// an earlier panic; the library refuses further work
	Poisoned Code = "poisoned"
	Internal Code = "internal" // a defect of this library
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
	return &Error{Code: code, Message: fmt.Sprintf(format, args...) + ": " + cause.Error(),
		Hint: hint, cause: cause}
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, nil when there is none.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether the Error inside err has the code.
func Is(err error, code Code) bool {
	var classified *Error
	return errors.As(err, &classified) && classified.Code == code
}

// From returns the Error inside err. An error of another type becomes Cancelled when it is a
// context's, else Internal.
func From(err error) *Error {
	var classified *Error
	switch {
	case errors.As(err, &classified):
		return classified
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Wrap(err, Cancelled, "", "stopped")
	default:
		return Wrap(err, Internal, "please report this as a defect, with the call that led to it",
			"unexpected error")
	}
}

// EditDistance counts the insertions, deletions and replacements of one byte between two texts
// (Levenshtein), for hints that name what may have been meant. It takes len(a) x len(b) steps:
// bound what comes from outside.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Closest returns the n things with the spellings nearest to a text, the nearest first, for hints
// that name what may have been meant.
func Closest[T any](n int, text string, things []T, spellings func(T) []string) []T {
	type candidate struct {
		thing    T
		distance int
	}
	var candidates []candidate
	for _, thing := range things {
		nearest := math.MaxInt
		for _, spelling := range spellings(thing) {
			nearest = min(nearest, EditDistance(text, spelling))
		}
		candidates = append(candidates, candidate{thing, nearest})
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return a.distance - b.distance })
	var closest []T
	for _, c := range candidates[:min(n, len(candidates))] {
		closest = append(closest, c.thing)
	}
	return closest
}

// InRange refuses a number outside its bounds.
func InRange(name string, value, low, high int) error {
	if value >= low && value <= high {
		return nil
	}
	return New(InvalidArgument,
		fmt.Sprintf("set %s to a whole number from %d to %d", name, low, high),
		"%s is %d, outside %d..%d", name, value, low, high)
}

// Plural writes a count with its noun: "1 GPU", "2 GPUs". The plural must be regular.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Shorten keeps a caller's text readable inside a message: valid UTF-8, cut after 80 characters.
func Shorten(text string) string {
	const limit = 80
	text = strings.ToValidUTF8(text, "?")
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return text
}

// Printable makes a file name valid UTF-8, so that it can cross JSON: every byte that is not part
// of a character becomes its \xNN escape.
func Printable(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, name[i])
		} else {
			b.WriteString(name[i : i+n])
		}
		i += n
	}
	return b.String()
}

// poison describes the first panic, with its stack; nil while there has been none.
var poison atomic.Pointer[string]

// Poison marks the library as unusable after a panic. Every goroutine and every export recovers and
// calls it: a panic that escapes would end the whole process, a notebook kernel with an hour of
// training in it. The first panic is kept for PoisonError, since later ones are its consequences;
// the returned error describes this one.
func Poison(where string, recovered any) error {
	text := fmt.Sprintf("%s: %v\n%s", where, recovered, debug.Stack())
	poison.CompareAndSwap(nil, &text)
	return poisoned(text)
}

// PoisonError returns the error with which a poisoned library answers, nil while there has been no
// panic.
func PoisonError() error {
	if text := poison.Load(); text != nil {
		return poisoned(*text)
	}
	return nil
}

func poisoned(text string) error {
	return New(Poisoned, "save your work and restart the process; then please report the text "+
		"above as a defect",
		"the library stopped after a panic in %s", text)
}
