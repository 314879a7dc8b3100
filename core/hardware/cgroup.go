package hardware

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Strategy for container limits.
//
// /proc/self/cgroup names the process's group in each hierarchy, /proc/self/mountinfo says where
// hierarchies are mounted and which group is the mount's root. From the process's group the walk
// goes up to the mount point and takes the smallest limit: a limit on any ancestor binds. Version 1
// and version 2 are both walked, so hybrid hosts need no special case; a missing file, folder or
// controller is "no limit here". In a cgroup namespace the group reads "/", or "/../.." for a
// process outside the namespace's root: both are the mount point. A group that the container cannot
// see falls through to the levels that it can.
//
// Memory. The limit is memory.max (v1: memory.limit_in_bytes, whose "none" is a huge number, here
// anything not below the host's RAM; and hierarchical_memory_limit, which tells of v1 ancestors
// outside the container's view). memory.high counts as a limit too: going over it kills nothing,
// but the kernel then stops the process to reclaim, and a training run that crawls is no use.
// Available is, at every level with a limit, limit - (usage - inactive_file): usage counts page
// cache, and the inactive part of it is given up before anything fails. Active file pages are
// counted as used, like the kubelet's working set does.
//
// CPU. cpu.max (v1: cfs_quota_us / cfs_period_us) gives a fraction of cores. cpuset is not read:
// the kernel already cuts the affinity mask down to it. The mask is Cpus_allowed_list of
// /proc/self/status, that of the main thread, which is the one that DataLoader workers inherit;
// sched_getaffinity would tell of whichever thread Go happens to be on.
//
// Not done: v2 limits above the namespace's root are invisible from inside. Swap limits are
// ignored, because training in swap is as good as failing. cpu.shares / cpu.weight are no limits:
// they only bind when the host is busy. ulimit -v is not read: CUDA's address-space reservations
// make it useless with a GPU.

// maxLevels bounds the walk; real hierarchies are less than twenty deep.
const maxLevels = 64

// hierarchy is the process's chain of groups in one mounted hierarchy.
type hierarchy struct {
	v2 bool
	// folders from the process's group up to the mount point, seen from the tree's root
	groups []string
}

// hierarchies lists the chains that hold a controller ("memory", "cpu"): version 1 when mounted,
// and version 2.
func (t tree) hierarchies(controller string) []hierarchy {
	memberships := parseMemberships(t.read("/proc/self/cgroup"))
	mounts := parseMounts(t.read("/proc/self/mountinfo"))
	var chains []hierarchy
	for _, v2 := range []bool{false, true} {
		i := slices.IndexFunc(memberships, func(m membership) bool {
			return m.holds(controller, v2)
		})
		if i < 0 {
			continue
		}
		group := memberships[i].group
		if mount, ok := mountOf(mounts, controller, v2, group); ok {
			chains = append(chains, hierarchy{v2: v2, groups: chain(mount, group)})
		}
	}
	return chains
}

// mountOf prefers a mount that shows the group; a hierarchy may be mounted in several places.
func mountOf(mounts []mount, controller string, v2 bool, group string) (best mount, ok bool) {
	for _, m := range mounts {
		if m.v2 != v2 || (!v2 && !m.holds(controller)) {
			continue
		}
		if _, inside := below(m.root, group); inside {
			return m, true
		}
		if !ok {
			best, ok = m, true
		}
	}
	return best, ok
}

// below returns the path from a mount's root group to group, and whether group lies at or under it.
func below(root, group string) (string, bool) {
	if root == "/" {
		return group, true
	}
	if relative := strings.TrimPrefix(group, root); relative == "" ||
		(relative != group && relative[0] == '/') {
		return relative, true
	}
	return "", false
}

// chain lists the folders from the group up to the mount point. A group outside the mount's view
// leaves the mount point.
func chain(m mount, group string) []string {
	relative, _ := below(m.root, group)
	relative = path.Clean("/" + relative) // also keeps the walk inside the mount
	var folders []string
	for relative != "/" && len(folders) < maxLevels {
		folders = append(folders, path.Join(m.point, relative))
		relative = path.Dir(relative)
	}
	return append(folders, m.point)
}

// memoryLimit is the smallest limit and the smallest room left, in bytes; both noLimit when nothing
// limits.
type memoryLimit struct {
	bytes  uint64
	source string // the file that says so
	room   uint64 // what can still be allocated
}

// take tightens the limit by one more and by the room that it leaves.
func (l *memoryLimit) take(bytes uint64, source string, used uint64) {
	if bytes < l.bytes {
		l.bytes, l.source = bytes, source
	}
	l.room = min(l.room, bytes-min(used, bytes))
}

// memoryLimit walks the hierarchies of the memory controller. What is not below total, the host's
// RAM, limits nothing; its usage is not even read, which in version 1 costs more than all the rest.
func (t tree) memoryLimit(hierarchies []hierarchy, total uint64) memoryLimit {
	smallest := memoryLimit{bytes: noLimit, room: noLimit}
	for _, h := range hierarchies {
		for level, group := range h.groups {
			if h.v2 {
				t.memoryV2(&smallest, group, total)
			} else {
				t.memoryV1(&smallest, group, total, level == 0)
			}
		}
	}
	return smallest
}

func (t tree) memoryV2(smallest *memoryLimit, group string, total uint64) {
	for _, name := range []string{"memory.max", "memory.high"} {
		source := path.Join(group, name)
		if limit, ok := parseLimit(t.read(source)); ok && limit < total {
			smallest.take(limit, source, t.used(path.Join(group, "memory.current"),
				path.Join(group, "memory.stat"), "inactive_file"))
		}
	}
}

// memoryV1 also takes the limit of invisible ancestors, at the process's own group. Their usage is
// unknown: the group's own usage stands for it, so the room may be less than told.
func (t tree) memoryV1(smallest *memoryLimit, group string, total uint64, own bool) {
	stat := path.Join(group, "memory.stat")
	used := func() uint64 {
		return t.used(path.Join(group, "memory.usage_in_bytes"), stat, "total_inactive_file")
	}
	source := path.Join(group, "memory.limit_in_bytes")
	if limit, ok := parseLimit(t.read(source)); ok && limit < total {
		smallest.take(limit, source, used())
	}
	if !own {
		return
	}
	if limit, ok := parseStat(t.read(stat), "hierarchical_memory_limit"); ok &&
		limit > 0 && limit < min(total, smallest.bytes) {
		smallest.take(limit, stat, used())
	}
}

// used is usage without the page cache that is first to go, 0 when the group does not report it.
func (t tree) used(usageFile, statFile, inactive string) uint64 {
	usage, ok := parseLimit(t.read(usageFile))
	if !ok {
		return 0
	}
	reclaimable, _ := parseStat(t.read(statFile), inactive)
	return usage - min(reclaimable, usage)
}

// cpuQuota is the smallest quota in cores, +Inf when nothing limits.
type cpuQuota struct {
	cores  float64
	source string
}

func (t tree) cpuQuota() cpuQuota {
	smallest := cpuQuota{cores: math.Inf(1)}
	for _, h := range t.hierarchies("cpu") {
		for _, group := range h.groups {
			name, period := "cpu.max", ""
			if !h.v2 {
				name, period = "cpu.cfs_quota_us", " "+
					t.read(path.Join(group, "cpu.cfs_period_us"))
			}
			source := path.Join(group, name)
			if cores, ok := parseQuota(t.read(source) + period); ok &&
				cores < smallest.cores {
				smallest = cpuQuota{cores: cores, source: source}
			}
		}
	}
	return smallest
}

// groupTime is the processor time that a group's processes have used.
func (t tree) groupTime(group string) (time.Duration, bool) {
	if used, ok := parseStat(t.read(path.Join(group, "cpu.stat")), "usage_usec"); ok &&
		used < math.MaxInt64/1000 {
		return time.Duration(used) * time.Microsecond, true
	}
	// version 1, in nanoseconds
	used, ok := parseLimit(t.read(path.Join(group, "cpuacct.usage")))
	return time.Duration(used), ok && used < math.MaxInt64
}

// allowedCPUs are the processors in the main thread's affinity mask; nil where the kernel does not
// tell.
func (t tree) allowedCPUs() map[int]bool {
	list, _ := statusField(t.read("/proc/self/status"), "Cpus_allowed_list")
	return parseCPUList(list)
}

// tree reads files below an injected root.
type tree struct{ root string }

func newTree(root string) tree {
	if root == "" {
		root = "/"
	}
	return tree{root: root}
}

// real is where a path of the tree lies on this machine.
func (t tree) real(name string) string {
	return filepath.Join(t.root, filepath.FromSlash(path.Clean("/"+name)))
}

// read returns a file's text, "" when it cannot be read.
func (t tree) read(name string) string {
	text, err := os.ReadFile(t.real(name))
	if err != nil {
		return ""
	}
	return string(text)
}
