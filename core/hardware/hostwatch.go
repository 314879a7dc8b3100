package hardware

import (
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

const (
	// treeEvery is how many readings pass between two looks at which processes belong to this one.
	treeEvery = 5
	// crowdedShare is the use of the processors from which on threads may wait for a core; below it
	// their queues, a small file for each thread, are not read.
	crowdedShare = 0.9
)

// HostWatch reads what the host does, again and again: rates are those since the reading before.
// One goroutine uses it.
type HostWatch struct {
	tree     tree
	pid      int
	own      string // the folder of pid in proc
	now      func() time.Time
	cpus     map[int]bool // that this process may use; nil: all
	quota    cpuQuota     // +Inf cores: no quota
	launched bool         // a launcher started this process, perhaps with others of the same training
	readings int
	workers  []int
	cpu      runlog.CPUUse
	crowded  bool // at the newest reading
	before   hostCounters
	unread   []runlog.Event
}

// hostCounters is what rates are made of.
type hostCounters struct {
	at            time.Time
	cpus          map[int]cpuTime
	ticks         map[int]uint64 // that processes of the tree have used
	ended         uint64         // ticks that ended children had used
	queued        map[int]uint64 // nanoseconds for which each thread waited for a core; nil: not read
	quotaUsed     time.Duration  // processor time that the container's group has used
	disks, net    traffic
	hasDisks      bool
	hasNet, quota bool
}

// WatchHost prepares readings. root is the folder that holds proc, sys and dev, "" for "/".
func WatchHost(root string) *HostWatch {
	tree := newTree(root)
	w := &HostWatch{tree: tree, pid: os.Getpid(), own: "/proc/self", now: time.Now,
		cpus: tree.allowedCPUs(), quota: tree.cpuQuota()}
	_, w.launched = os.LookupEnv("LOCAL_RANK")
	return w
}

// Of watches the tree of another process than this one; 0 changes nothing.
func (w *HostWatch) Of(pid int) *HostWatch {
	if pid > 0 {
		w.pid, w.own, w.readings = pid, procOf(pid), 0
	}
	return w
}

// Properties are the processors and the size of /dev/shm; the rest is the monitor's to fill in.
func (w *HostWatch) Properties() runlog.Host {
	facts := runlog.Host{CPUs: len(w.cpus)}
	if total, _, ok := spaceOf(w.tree.real("/dev/shm")); ok {
		facts.ShmTotalBytes = total
	}
	return facts
}

// Activity reads the host. Rates are absent in the first reading. What cannot be read is absent,
// and told of.
func (w *HostWatch) Activity() (runlog.HostReading, []runlog.Event) {
	r, counters := runlog.NoHostReading(), hostCounters{at: w.now()}
	w.unread = nil
	w.cpu = runlog.CPUUse{Cores: math.NaN(), Others: math.NaN(), Waiting: math.NaN()}
	w.memory(&r)
	w.processes(&r, &counters)
	w.count(&counters)
	if !w.before.at.IsZero() {
		w.rates(&r, &counters)
	}
	w.before = counters
	w.readings++
	return r, w.unread
}

// text reads a file that every Linux has.
func (w *HostWatch) text(name string) string {
	text := w.tree.read(name)
	if text == "" {
		w.unread = append(w.unread, runlog.Event{Kind: runlog.EventUnread, GPU: -1, Text: name +
			" cannot be read"})
	}
	return text
}

func (w *HostWatch) memory(r *runlog.HostReading) {
	text := w.text("/proc/meminfo")
	total, ok := meminfoField(text, "SwapTotal")
	free, ok2 := meminfoField(text, "SwapFree")
	if ok && ok2 && free <= total {
		r.SwapUsed = float64(total - free)
	}
	if total, free, ok := spaceOf(w.tree.real("/dev/shm")); ok {
		r.ShmUsed = float64(total - free)
	}
}

// processes adds up the tree. A worker that ended meanwhile counts nothing.
func (w *HostWatch) processes(r *runlog.HostReading, counters *hostCounters) {
	if w.readings%treeEvery == 0 || w.crowded { // workers may live for less than an epoch's seconds
		w.workers = w.tree.descendants(w.pid)
	}
	own, ok := w.tree.process(w.own)
	if !ok {
		w.text(path.Join(w.own, "stat"))
		return
	}
	var workers uint64
	counters.ticks, counters.ended = map[int]uint64{w.pid: own.ticks}, own.ended
	for _, pid := range w.workers {
		if worker, ok := w.tree.process(procOf(pid)); ok {
			workers += worker.resident
			counters.ticks[pid] = worker.ticks
		}
	}
	r.TreeRSS, r.WorkersRSS = float64(own.resident+workers), float64(workers)
}

func (w *HostWatch) count(counters *hostCounters) {
	counters.cpus = parseCPUTimes(w.text("/proc/stat"))
	// a container may have none
	counters.disks, counters.hasDisks = parseDisks(w.tree.read("/proc/diskstats"))
	counters.net, counters.hasNet = parseNetwork(w.text("/proc/net/dev"))
	if !math.IsInf(w.quota.cores, 1) {
		counters.quotaUsed, counters.quota = w.tree.groupTime(path.Dir(w.quota.source))
	}
}

func (w *HostWatch) rates(r *runlog.HostReading, counters *hostCounters) {
	passed := counters.at.Sub(w.before.at).Seconds()
	if passed <= 0 {
		return
	}
	var sum, sumBefore cpuTime
	counted := 0.0
	for number, time := range counters.cpus {
		before, isKnown := w.before.cpus[number]
		if !isKnown || (w.cpus != nil && !w.cpus[number]) {
			continue
		}
		counted++
		sum, sumBefore = cpuTime{sum.busy + time.busy, sum.all + time.all},
			cpuTime{sumBefore.busy + before.busy, sumBefore.all + before.all}
		if share, ok := time.share(before); ok && !(r.BusiestCore > share) {
			r.BusiestCore = share
		}
	}
	all := float64(sum.all-sumBefore.all) * min(1, w.quota.cores/counted)
	if share, ok := sum.share(sumBefore); ok {
		r.CPUShare, r.TreeCPU = share, counters.tree(&w.before, all)
	}
	if counters.quota && w.before.quota && counters.quotaUsed >= w.before.quotaUsed {
		r.CPUShare = min(1, (counters.quotaUsed-w.before.quotaUsed).Seconds()/passed/w.quota.cores)
	}
	w.crowded = r.CPUShare >= crowdedShare
	if !w.launched {
		w.cpu.Cores = min(counted, w.quota.cores)
		ended := float64(counters.ended-min(counters.ended, w.before.ended)) / all
		w.cpu.Others = w.cpu.Cores * max(0, r.CPUShare-r.TreeCPU-ended)
		w.cpu.Waiting = w.waiting(counters, passed)
	}
	if counters.hasDisks && w.before.hasDisks {
		r.DiskRead, r.DiskWritten = rate(counters.disks.in, w.before.disks.in, passed),
			rate(counters.disks.out, w.before.disks.out, passed)
	}
	if counters.hasNet && w.before.hasNet {
		r.Received, r.Sent = rate(counters.net.in, w.before.net.in, passed),
			rate(counters.net.out, w.before.net.out, passed)
	}
}

// CPUUse is how the processors were shared at the newest Activity. Of a process that a launcher
// started nothing is known: what others use may be the same training's. Children that ended are no
// others: workers that start anew in each epoch may have lived between two readings.
func (w *HostWatch) CPUUse() runlog.CPUUse { return w.cpu }

// waiting is how many threads of the watched process waited for a core on average: none while cores
// are free, NaN where the kernel does not report it, and at the first crowded reading.
func (w *HostWatch) waiting(counters *hostCounters, passed float64) float64 {
	if !w.crowded {
		return 0
	}
	if counters.queued = w.queues(); counters.queued == nil || w.before.queued == nil {
		return math.NaN()
	}
	waited := uint64(0)
	for thread, ns := range counters.queued {
		if before, ok := w.before.queued[thread]; ok && ns >= before {
			waited += ns - before
		}
	}
	return float64(waited) / 1e9 / passed
}

// queues is for how long each thread of the watched process waited for a core so far, in
// nanoseconds: the second figure of schedstat, which gopsutil does not read. Nil where the kernel
// does not count it.
func (w *HostWatch) queues() map[int]uint64 {
	queued, threads := map[int]uint64{}, path.Join(w.own, "task")
	for _, thread := range w.tree.numbersIn(threads, maxThreads) {
		text := w.tree.read(path.Join(threads, strconv.Itoa(thread), "schedstat"))
		if n := numbersOf(strings.Fields(text)); len(n) == 3 {
			queued[thread] = n[1]
		}
	}
	if len(queued) == 0 {
		return nil
	}
	return queued
}

// tree is the part of the processors' ticks that processes known in both readings used, 0 to 1; NaN
// without any.
func (c *hostCounters) tree(before *hostCounters, all float64) float64 {
	used, counted := uint64(0), false
	for pid, ticks := range c.ticks {
		if was, ok := before.ticks[pid]; ok && ticks >= was {
			used, counted = used+ticks-was, true
		}
	}
	if !counted {
		return math.NaN()
	}
	return min(1, float64(used)/all)
}

// rate is a counter's rise per second; absent when it fell, as when an interface was taken away.
func rate(newer, before uint64, seconds float64) float64 {
	if newer < before {
		return math.NaN()
	}
	return float64(newer-before) / seconds
}

// sectorBytes is the unit of /proc/diskstats, whatever a disk's own sectors are
// (Documentation/admin-guide/iostats.rst).
const sectorBytes = 512

// traffic is two counters that rise, in bytes.
type traffic struct{ in, out uint64 }

// numbersOf are the numbers that fields begin with.
func numbersOf(fields []string) (numbers []uint64) {
	for _, field := range fields {
		number, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			break
		}
		numbers = append(numbers, number)
	}
	return numbers
}

// parseDisks adds up what whole disks read and wrote. Partitions and what lies on top of other
// disks (loop, ram, dm, md) would count twice.
func parseDisks(text string) (all traffic, ok bool) {
	disk := ""
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 10 || stacked(fields[2]) || partition(fields[2], disk) {
			continue
		}
		disk = fields[2]
		if n := numbersOf(fields[3:]); len(n) >= 7 {
			all.in, all.out, ok = all.in+n[2]*sectorBytes, all.out+n[6]*sectorBytes, true
		}
	}
	return all, ok
}

func stacked(name string) bool {
	return slices.ContainsFunc([]string{"loop", "ram", "zram", "dm-", "md", "sr", "fd"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// partition reports whether a name is a partition of the disk listed before it: sda1 of sda,
// nvme0n1p2 of nvme0n1.
func partition(name, disk string) bool {
	suffix, inside := strings.CutPrefix(name, disk)
	if disk == "" || !inside || suffix == "" {
		return false
	}
	_, err := strconv.Atoi(strings.TrimPrefix(suffix, "p"))
	return err == nil
}

// parseNetwork adds up what all interfaces but the loopback received and sent.
func parseNetwork(text string) (all traffic, ok bool) {
	for line := range strings.SplitSeq(text, "\n") {
		name, counters, _ := strings.Cut(line, ":")
		n := numbersOf(strings.Fields(counters))
		if len(n) >= 16 && strings.TrimSpace(name) != "lo" {
			all.in, all.out, ok = all.in+n[0], all.out+n[8], true
		}
	}
	return all, ok
}

// cpuTime is what /proc/stat tells of one processor, in ticks.
type cpuTime struct{ busy, all uint64 }

// parseCPUTimes reads the lines "cpu3 user nice system idle iowait irq softirq steal …". Guest time
// is part of user time.
func parseCPUTimes(text string) map[int]cpuTime {
	times := map[int]cpuTime{}
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "cpu") {
			break // the processors come first, the interrupts after them are long
		}
		fields := strings.Fields(line)
		number, err := strconv.Atoi(fields[0][len("cpu"):])
		if err != nil || len(fields) < 5 || number < 0 || number >= maxCPUs {
			continue
		}
		var time cpuTime
		for i, ticks := range numbersOf(fields[1:min(len(fields), 9)]) {
			time.all += ticks
			if i != 3 && i != 4 { // idle, and waiting for disks
				time.busy += ticks
			}
		}
		times[number] = time
	}
	return times
}

// share is the busy part of the time between two readings, 0 to 1; not ok when no time passed or
// the counters fell.
func (t cpuTime) share(before cpuTime) (float64, bool) {
	if t.all <= before.all || t.busy < before.busy {
		return 0, false
	}
	return min(1, float64(t.busy-before.busy)/float64(t.all-before.all)), true
}
