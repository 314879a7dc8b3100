package fault

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
)

// poison describes the first panic; nil while all is well.
var poison atomic.Pointer[string]

// Poison marks the library as unusable after a panic. Every goroutine and every export recovers and calls it: a panic
// that escapes would end the whole process, a notebook kernel with an hour of training in it. Only the first panic is
// kept, since later ones are its consequences.
func Poison(where string, recovered any) {
	text := fmt.Sprintf("%s: %v\n%s", where, recovered, debug.Stack())
	poison.CompareAndSwap(nil, &text)
}

// PoisonError gives the error with which a poisoned library answers, nil while there has been no panic.
func PoisonError() error {
	text := poison.Load()
	if text == nil {
		return nil
	}
	return New(Poisoned, "save your work and restart the process; then please report the text above as a defect",
		"the library stopped after a panic in %s", *text)
}
