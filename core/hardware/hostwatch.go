package hardware

import (
	"math"
	"os"
	"path"
	"time"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// treeEvery is how many readings pass between two looks at which processes belong to this one.
const treeEvery = 5

// HostWatch reads what the host does, again and again: rates are those since the reading before. One goroutine uses it.
type HostWatch struct {
	tree     tree
	pid      int
	own      string // the folder of pid in proc
	now      func() time.Time
	cpus     map[int]bool // that this process may use; nil: all
	quota    cpuQuota     // +Inf cores: no quota
	readings int
	workers  []int
	before   hostCounters
	unread   []runlog.Event
}

// hostCounters is what rates are made of.
type hostCounters struct {
	at            time.Time
	cpus          map[int]cpuTime
	ticks         map[int]uint64 // that processes of the tree have used
	quotaUsed     time.Duration  // processor time that the container's group has used
	disks, net    traffic
	hasDisks      bool
	hasNet, quota bool
}

// WatchHost prepares readings. root is the folder that holds proc, sys and dev, "" for "/".
func WatchHost(root string) *HostWatch {
	tree := newTree(root)
	w := &HostWatch{tree: tree, pid: os.Getpid(), own: "/proc/self", now: time.Now, quota: tree.cpuQuota()}
	if list, ok := statusField(tree.read("/proc/self/status", sizeStat), "Cpus_allowed_list"); ok {
		cpus := map[int]bool{}
		if eachCPU(list, func(number int) { cpus[number] = true }) {
			w.cpus = cpus
		}
	}
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

// Activity reads the host. Rates are absent in the first reading. What cannot be read is absent, and told of.
func (w *HostWatch) Activity() (runlog.HostReading, []runlog.Event) {
	r, now := runlog.NoHostReading(), hostCounters{at: w.now()}
	w.unread = nil
	w.memory(&r)
	w.processes(&r, &now)
	w.count(&now)
	if !w.before.at.IsZero() {
		w.rates(&r, &now)
	}
	w.before = now
	w.readings++
	return r, w.unread
}

// text reads a file that every Linux has.
func (w *HostWatch) text(name string, size int64) string {
	text := w.tree.read(name, size)
	if text == "" {
		w.unread = append(w.unread, runlog.Event{Kind: runlog.EventUnread, GPU: -1, Text: name + " cannot be read"})
	}
	return text
}

func (w *HostWatch) memory(r *runlog.HostReading) {
	text := w.text("/proc/meminfo", sizeStat)
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
func (w *HostWatch) processes(r *runlog.HostReading, now *hostCounters) {
	if w.readings%treeEvery == 0 {
		w.workers = w.tree.descendants(w.pid)
	}
	own, ok := w.tree.process(w.own)
	if !ok {
		w.text(path.Join(w.own, "stat"), sizeStat)
		return
	}
	var workers uint64
	now.ticks = map[int]uint64{w.pid: own.ticks}
	for _, pid := range w.workers {
		if worker, ok := w.tree.process(procOf(pid)); ok {
			workers += worker.resident
			now.ticks[pid] = worker.ticks
		}
	}
	r.TreeRSS, r.WorkersRSS = float64(own.resident+workers), float64(workers)
}

func (w *HostWatch) count(now *hostCounters) {
	now.cpus = parseCPUTimes(w.text("/proc/stat", sizeCounters))
	now.disks, now.hasDisks = parseDisks(w.tree.read("/proc/diskstats", sizeCounters)) // a container may have none
	now.net, now.hasNet = parseNetwork(w.text("/proc/net/dev", sizeCounters))
	if !math.IsInf(w.quota.cores, 1) {
		now.quotaUsed, now.quota = w.tree.groupTime(path.Dir(w.quota.source))
	}
}

func (w *HostWatch) rates(r *runlog.HostReading, now *hostCounters) {
	passed := now.at.Sub(w.before.at).Seconds()
	if passed <= 0 {
		return
	}
	var sum cpuTime
	var sumBefore cpuTime
	counted := 0.0
	for number, time := range now.cpus {
		before, known := w.before.cpus[number]
		if !known || (w.cpus != nil && !w.cpus[number]) {
			continue
		}
		counted++
		sum, sumBefore = cpuTime{sum.busy + time.busy, sum.all + time.all}, cpuTime{sumBefore.busy + before.busy, sumBefore.all + before.all}
		if share, ok := time.share(before); ok && !(r.BusiestCore > share) {
			r.BusiestCore = share
		}
	}
	if share, ok := sum.share(sumBefore); ok {
		r.CPUShare = share
		r.TreeCPU = now.tree(&w.before, float64(sum.all-sumBefore.all)*min(1, w.quota.cores/counted))
	}
	if now.quota && w.before.quota && now.quotaUsed >= w.before.quotaUsed {
		r.CPUShare = min(1, (now.quotaUsed-w.before.quotaUsed).Seconds()/passed/w.quota.cores)
	}
	if now.hasDisks && w.before.hasDisks {
		r.DiskRead, r.DiskWritten = rate(now.disks.in, w.before.disks.in, passed), rate(now.disks.out, w.before.disks.out, passed)
	}
	if now.hasNet && w.before.hasNet {
		r.Received, r.Sent = rate(now.net.in, w.before.net.in, passed), rate(now.net.out, w.before.net.out, passed)
	}
}

// tree is the part of the processors' ticks that processes known in both readings used, 0 to 1; NaN without any.
func (now *hostCounters) tree(before *hostCounters, all float64) float64 {
	used, known := uint64(0), false
	for pid, ticks := range now.ticks {
		if was, ok := before.ticks[pid]; ok && ticks >= was {
			used, known = used+ticks-was, true
		}
	}
	if !known {
		return math.NaN()
	}
	return min(1, float64(used)/all)
}

// rate is a counter's rise per second; absent when it fell, as when an interface was taken away.
func rate(now, before uint64, seconds float64) float64 {
	if now < before {
		return math.NaN()
	}
	return float64(now-before) / seconds
}
