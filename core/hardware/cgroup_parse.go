package hardware

import (
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// membership is one line of /proc/<pid>/cgroup: "4:memory:/docker/0a1b", or "0::/user.slice" for
// version 2.
type membership struct {
	v2          bool
	controllers []string
	group       string // absolute and clean
}

func (m membership) holds(controller string, v2 bool) bool {
	return m.v2 == v2 && (v2 || slices.Contains(m.controllers, controller))
}

// parseMemberships skips lines that it does not understand.
func parseMemberships(text string) []membership {
	var memberships []membership
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.SplitN(line, ":", 3)
		if len(fields) < 3 || !strings.HasPrefix(fields[2], "/") {
			continue
		}
		memberships = append(memberships, membership{
			v2:          fields[0] == "0" && fields[1] == "",
			controllers: strings.Split(fields[1], ","),
			group:       path.Clean(fields[2]), // "/../.." becomes "/"
		})
	}
	return memberships
}

// mount is one cgroup mount of /proc/<pid>/mountinfo.
type mount struct {
	v2          bool
	controllers []string // of version 1, out of the super options
	root, point string   // the group shown at the mount point; the mount point
}

func (m mount) holds(controller string) bool { return slices.Contains(m.controllers, controller) }

// parseMounts reads the cgroup mounts out of mountinfo (proc_pid_mountinfo(5)): "36 35 98:0 /root
// /point rw,noatime shared:1 - cgroup cgroup rw,memory". Other and broken lines are skipped.
func parseMounts(text string) []mount {
	var mounts []mount
	for line := range strings.SplitSeq(text, "\n") {
		before, after, ok := strings.Cut(line, " - ")
		if !ok || !strings.HasPrefix(after, "cgroup") {
			continue
		}
		fields, right := strings.Fields(before), strings.Fields(after)
		if len(fields) < 6 || len(right) < 3 || (right[0] != "cgroup" && right[0] != "cgroup2") {
			continue
		}
		mounts = append(mounts, mount{
			v2: right[0] == "cgroup2", controllers: strings.Split(right[2], ","),
			root:  path.Clean("/" + escapes.Replace(fields[3])),
			point: path.Clean("/" + escapes.Replace(fields[4])),
		})
	}
	return mounts
}

// escapes are the characters that the kernel writes in octal in mountinfo.
var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// parseLimit reads a byte count. "max", negative, overflowing or other text, and 0, under which no
// process could run, are no limit.
func parseLimit(text string) (uint64, bool) {
	limit, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	return limit, err == nil && limit > 0
}

// parseStat finds one "name value" line.
func parseStat(text, name string) (uint64, bool) {
	value, _ := field(text, name, " ")
	number, err := strconv.ParseUint(value, 10, 64)
	return number, err == nil
}

// field is what follows a name and a separator in one of the lines.
func field(text, name, separator string) (string, bool) {
	for line := range strings.SplitSeq(text, "\n") {
		if key, value, ok := strings.Cut(line, separator); ok && key == name {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// parseQuota reads "quota period" in microseconds and gives cores; the period may be left out and
// is then 100 ms. "max", -1 and anything that is no positive number are no limit.
func parseQuota(text string) (cores float64, ok bool) {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return 0, false
	}
	quota, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || quota <= 0 {
		return 0, false
	}
	period := int64(100_000)
	if len(fields) > 1 {
		if period, err = strconv.ParseInt(fields[1], 10, 64); err != nil || period <= 0 {
			return 0, false
		}
	}
	cores = float64(quota) / float64(period)
	return cores, cores > 0 && !math.IsInf(cores, 0)
}

// maxCPUs bounds processor numbers; Linux is built for 8192 at most.
const maxCPUs = 1 << 16

// parseCPUList reads a kernel list such as "0-3,8,10-11". Numbers must rise, as the kernel writes
// them; anything else gives nil.
func parseCPUList(text string) map[int]bool {
	cpus, next := map[int]bool{}, 0 // smallest number that may follow
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < next || last < first || last >= maxCPUs {
			return nil
		}
		for next = first; next <= last; next++ {
			cpus[next] = true
		}
	}
	return cpus
}

// meminfoField finds "Name:    12 kB" in /proc/meminfo, in bytes.
func meminfoField(text, name string) (uint64, bool) {
	value, ok := statusField(text, name)
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(strings.TrimSuffix(value, " kB"), 10, 64)
	return number << 10, err == nil && number < maxHostMemory>>10
}

// statusField finds "Name:\tvalue" in /proc/<pid>/status.
func statusField(text, name string) (string, bool) { return field(text, name, ":") }
