package allocator_test

import (
	"errors"
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
)

const mib = 1 << 20

// A device of 64 MiB: 12 MiB take a segment of their own, 1 MiB one of 2 MiB, and the cache goes
// back before an error.
func Example() {
	settings, err := allocator.ParseSettings("garbage_collection_threshold:0.8")
	if err != nil {
		panic(err)
	}
	settings.Limit = 64 * mib
	gpu := allocator.New(settings)

	activations, err := gpu.Malloc(12 * mib)
	if err != nil {
		panic(err)
	}
	if _, err = gpu.Malloc(1 * mib); err != nil {
		panic(err)
	}
	if err = gpu.Free(activations); err != nil {
		panic(err)
	}
	stats := gpu.Stats()
	fmt.Println(stats.Allocated/mib, "MiB allocated,", stats.Reserved/mib, "MiB reserved")

	_, err = gpu.Malloc(63 * mib)
	var full *allocator.OutOfMemory
	fmt.Println(errors.As(err, &full), full.Reserved/mib, "MiB reserved after the cache went back")
	// Output:
	// 1 MiB allocated, 14 MiB reserved
	// true 2 MiB reserved after the cache went back
}
