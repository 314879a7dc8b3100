package device

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// laterKernels is the room left above a measurement for kernels that a process loads later on
// (evaluation, generation). It is judged, not measured: all of PyTorch's kernels together take 362
// MiB (pytorch/pytorch#86509, eager against lazy loading).
const laterKernels = 64 * mib

// implausible is how far outside the table's range a measurement is named as doubtful.
const implausible = 3

// measured subtracts what PyTorch has reserved from what the driver reports for the process.
func measured(used, reserved uint64, table Figure) (Figure, error) {
	if used < reserved {
		return Figure{}, fault.New(fault.InvalidArgument,
			"read both for the same process and device at one moment",
			"the process uses %d bytes, less than the %d that PyTorch has reserved in it", used,
			reserved)
	}
	bytes := used - reserved
	note := fmt.Sprintf("measured: %d MiB in use by the process less %d MiB reserved by PyTorch",
		used/mib, reserved/mib)
	switch {
	case bytes < table.Low/implausible:
		note += fmt.Sprintf("; doubtful: the table says at least %d MiB, so the driver may not "+
			"count all of the process", table.Low/mib)
	case bytes > table.High*implausible:
		note += fmt.Sprintf("; doubtful: the table says at most %d MiB, so another library may "+
			"hold memory too", table.High/mib)
	}
	return Figure{Name: "context", Bytes: bytes, Low: bytes, High: bytes + laterKernels,
		Source: "measured", Note: note,
		References: []string{}}, nil
}
