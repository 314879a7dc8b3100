package hardware

import (
	"strconv"
	"strings"
)

// sizeCounters bounds /proc/stat, diskstats and net/dev, of which the first grows with the processors: 1 MiB.
const sizeCounters = 1 << 20

// sectorBytes is the unit of /proc/diskstats, whatever a disk's own sectors are (Documentation/admin-guide/iostats.rst).
const sectorBytes = 512

// traffic is two counters that rise, in bytes.
type traffic struct{ in, out uint64 }

// parseDisks adds up what whole disks read and wrote. Partitions and what lies on top of other disks (loop, ram, dm, md)
// would count twice.
func parseDisks(text string) (all traffic, ok bool) {
	whole := ""
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 10 || stacked(fields[2]) || partition(fields[2], whole) {
			continue
		}
		whole = fields[2]
		read, err := strconv.ParseUint(fields[5], 10, 64)
		written, err2 := strconv.ParseUint(fields[9], 10, 64)
		if err == nil && err2 == nil {
			all.in, all.out, ok = all.in+read*sectorBytes, all.out+written*sectorBytes, true
		}
	}
	return all, ok
}

func stacked(name string) bool {
	for _, prefix := range []string{"loop", "ram", "zram", "dm-", "md", "sr", "fd"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// partition tells whether a name is a partition of the disk listed before it: sda1 of sda, nvme0n1p2 of nvme0n1.
func partition(name, disk string) bool {
	rest, inside := strings.CutPrefix(name, disk)
	if disk == "" || !inside || rest == "" {
		return false
	}
	_, err := strconv.Atoi(strings.TrimPrefix(rest, "p"))
	return err == nil
}

// parseNetwork adds up what all interfaces but the loopback received and sent.
func parseNetwork(text string) (all traffic, ok bool) {
	for line := range strings.SplitSeq(text, "\n") {
		name, rest, found := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if !found || len(fields) < 16 || strings.TrimSpace(name) == "lo" {
			continue
		}
		received, err := strconv.ParseUint(fields[0], 10, 64)
		sent, err2 := strconv.ParseUint(fields[8], 10, 64)
		if err == nil && err2 == nil {
			all.in, all.out, ok = all.in+received, all.out+sent, true
		}
	}
	return all, ok
}

// cpuTime is what /proc/stat tells of one processor, in ticks.
type cpuTime struct{ busy, all uint64 }

// parseCPUTimes reads the lines "cpu3 user nice system idle iowait irq softirq steal …". Guest time is part of user time.
func parseCPUTimes(text string) map[int]cpuTime {
	found := map[int]cpuTime{}
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "cpu") {
			break // the processors come first, the interrupts behind them are long
		}
		fields := strings.Fields(line)
		number, err := strconv.Atoi(fields[0][len("cpu"):])
		if err != nil || len(fields) < 5 || number < 0 || number >= maxCPUs {
			continue
		}
		var time cpuTime
		for i, field := range fields[1:min(len(fields), 9)] {
			ticks, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				break
			}
			time.all += ticks
			if i != 3 && i != 4 { // idle, and waiting for disks
				time.busy += ticks
			}
		}
		found[number] = time
	}
	return found
}

// share is the busy part of the time between two readings, 0 to 1; not ok when no time passed or the counters fell.
func (now cpuTime) share(before cpuTime) (float64, bool) {
	if now.all <= before.all || now.busy < before.busy {
		return 0, false
	}
	return min(1, float64(now.busy-before.busy)/float64(now.all-before.all)), true
}
