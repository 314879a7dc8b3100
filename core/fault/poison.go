package fault

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
)

// poison describes the first panic; nil while all is well.
var poison atomic.Pointer[string]

// Poison marks the library as unusable after a panic. Every goroutine and every export recovers and calls it: a panic
// that escapes would end the whole process, a notebook kernel with an hour of training in it. The first panic is kept for
// PoisonError, since later ones are its consequences; the error given back tells of this one.
func Poison(where string, recovered any) error {
	text := fmt.Sprintf("%s: %v\n%s", where, recovered, debug.Stack())
	poison.CompareAndSwap(nil, &text)
	return poisoned(text)
}

// PoisonError gives the error with which a poisoned library answers, nil while there has been no panic.
func PoisonError() error {
	text := poison.Load()
	if text == nil {
		return nil
	}
	return poisoned(*text)
}

func poisoned(text string) error {
	return New(Poisoned, "save your work and restart the process; then please report the text above as a defect",
		"the library stopped after a panic in %s", text)
}
