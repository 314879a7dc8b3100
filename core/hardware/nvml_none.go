//go:build !linux || !cgo

package hardware

import (
	"runtime"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// connect says that this build cannot ask the driver: NVML is reached through cgo, and only on
// Linux.
func connect(string) (*session, error) {
	return nil, fault.New(fault.NotFound, "plan for a GPU by its name instead",
		"GPUs are not measured by this build (%s without NVML)", runtime.GOOS)
}
