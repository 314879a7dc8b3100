package hardware

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/shirou/gopsutil/v3/common"
	"github.com/shirou/gopsutil/v3/cpu"
	"github.com/shirou/gopsutil/v3/mem"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// maxHostMemory bounds what is believed of /proc/meminfo: 1 PiB.
const maxHostMemory = 1 << 50

// hostContext points gopsutil at another proc and sys.
func hostContext(proc, sys string) context.Context {
	return context.WithValue(context.Background(), common.EnvKey,
		common.EnvMap{common.HostProcEnvKey: proc, common.HostSysEnvKey: sys})
}

// Host reads the RAM that this process may use again and again: the host's, cut down to the
// container's limit.
type Host struct {
	tree tree
	// found once: a process that is moved to another group while it is watched is not followed
	groups []hierarchy
}

// OpenHost finds the process's groups. root is the folder that holds proc and sys, "" for "/".
func OpenHost(root string) *Host {
	tree := newTree(root)
	return &Host{tree: tree, groups: tree.hierarchies("memory")}
}

// Memory reads a few small files, cheap enough for ten readings a second. A missing or impossible
// meminfo gives NotFound or Corrupt; without readable limits the host's figures stand.
func (h *Host) Memory() (profile.Memory, error) {
	tree := h.tree
	host, err := mem.VirtualMemoryWithContext(hostContext(tree.real("/proc"), tree.real("/sys")))
	if err != nil {
		return profile.Memory{}, fault.Wrap(err, fault.Corrupt, "",
			"cannot read the host's memory from %s", tree.real("/proc/meminfo"))
	}
	if host.Total == 0 {
		return profile.Memory{}, fault.New(fault.NotFound,
			"mount /proc, or name the folder that holds it",
			"cannot read the host's memory: %s is missing or empty", tree.real("/proc/meminfo"))
	}
	if host.Total > maxHostMemory {
		return profile.Memory{}, fault.New(fault.Corrupt, "",
			"%s claims %d B of memory, more than any host has",
			tree.real("/proc/meminfo"), host.Total)
	}
	memory := profile.Memory{
		TotalBytes: host.Total, HostTotalBytes: host.Total,
		AvailableBytes: min(host.Available, host.Total),
	}
	limit := tree.memoryLimit(h.groups, host.Total)
	if limit.bytes < memory.TotalBytes {
		memory.TotalBytes, memory.LimitSource = limit.bytes, limit.source
	}
	memory.AvailableBytes = min(memory.AvailableBytes, memory.TotalBytes, limit.room)
	return memory, nil
}

// hostCPU counts the processors. Unreadable facts fall back to what the Go runtime sees, so the
// counts are at least 1.
func hostCPU(root string) profile.CPU {
	tree := newTree(root)
	ctx := hostContext(tree.real("/proc"), tree.real("/sys"))
	result := profile.CPU{Model: cpuModel(tree)}
	result.LogicalCores, _ = cpu.CountsWithContext(ctx, true)
	if result.LogicalCores < 1 {
		result.LogicalCores = runtime.NumCPU()
	}
	result.PhysicalCores, _ = cpu.CountsWithContext(ctx, false)
	if result.PhysicalCores < 1 || result.PhysicalCores > result.LogicalCores {
		result.PhysicalCores = result.LogicalCores // virtual machines on ARM tell no topology
	}
	result.UsableCores = float64(result.LogicalCores)
	if allowed := tree.allowedCPUs(); allowed != nil && len(allowed) < result.LogicalCores {
		result.UsableCores = float64(len(allowed))
		result.LimitSource = fmt.Sprintf("CPU affinity or cpuset: %d of %d processors",
			len(allowed), result.LogicalCores)
	}
	if quota := tree.cpuQuota(); quota.cores < result.UsableCores {
		result.UsableCores, result.LimitSource = quota.cores, quota.source
	}
	return result
}

// cpuModel is the name of the first processor, "" where the kernel gives none. gopsutil is sent to
// an empty sys folder: it would open two topology files per processor for facts not used here, and
// it indexes past the end of an empty one.
func cpuModel(tree tree) string {
	proc := tree.real("/proc")
	infos, _ := cpu.InfoWithContext(hostContext(proc, filepath.Join(proc, "no-sys")))
	for _, info := range infos {
		if info.ModelName != "" {
			return strings.ToValidUTF8(strings.TrimSpace(info.ModelName), "?")
		}
	}
	return ""
}

const noLimit = math.MaxUint64
