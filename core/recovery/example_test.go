package recovery_test

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/recovery"
)

// The text outranks the type: loader workers and wrappers raise a RuntimeError for everything.
func ExampleClassify() {
	class, advice := recovery.Classify("RuntimeError", "CUDA out of memory. Tried to allocate 2.00 GiB")
	fmt.Println(class)
	fmt.Println(advice)

	class, _ = recovery.Classify("ValueError", "too many values to unpack")
	fmt.Println(class)
	// Output:
	// gpu_oom
	// GPU memory ran out; a smaller micro-batch with more accumulation keeps the effective batch
	// other
}
