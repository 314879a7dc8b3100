package hardware

import (
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Strategy for the process tree.
//
// /proc/<pid>/task/<tid>/children lists the processes that a thread started, so a tree of a few
// workers takes a few small files however many processes the host has. Memory that a worker shares
// with its parent counts for both, as in top: separating it (smaps_rollup) walks page tables, which
// takes milliseconds for a large process.

const (
	maxTree    = 1024 // processes of a tree
	maxThreads = 4096 // of one process
)

func (t tree) descendants(pid int) []int {
	var pids []int
	for queue := []int{pid}; len(queue) > 0 && len(pids) < maxTree; queue = queue[1:] {
		for _, thread := range t.numbersIn(path.Join(procOf(queue[0]), "task"), maxThreads) {
			children := t.read(path.Join(procOf(queue[0]), "task", strconv.Itoa(thread),
				"children"))
			for _, child := range strings.Fields(children) {
				if number, err := strconv.Atoi(child); err == nil {
					pids, queue = append(pids, number), append(queue, number)
				}
			}
		}
	}
	return pids[:min(len(pids), maxTree)]
}

func procOf(pid int) string { return path.Join("/proc", strconv.Itoa(pid)) }

func (t tree) numbersIn(folder string, limit int) []int {
	file, err := os.Open(t.real(folder))
	if err != nil {
		return nil
	}
	defer file.Close()
	names, _ := file.Readdirnames(limit)
	var numbers []int
	for _, name := range names {
		if number, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// process is what /proc/<pid>/stat reports: processor time of all threads in ticks, and that of
// ended children; resident memory in bytes.
type process struct{ ticks, ended, resident uint64 }

func (t tree) process(folder string) (process, bool) {
	return parseProcess(t.read(path.Join(folder, "stat")), uint64(os.Getpagesize()))
}

// parseProcess reads "12 (a name) with) S 1 …". The name may hold anything; the last parenthesis
// ends it.
func parseProcess(text string, page uint64) (p process, ok bool) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 { // proc_pid_stat(5) numbers them from 1, of which two come before the state
		return p, false
	}
	times, pages := numbersOf(fields[11:15]), numbersOf(fields[21:22])
	if len(times) < 4 || len(pages) < 1 || pages[0] >= maxHostMemory/page {
		return p, false
	}
	return process{times[0] + times[1], times[2] + times[3], pages[0] * page}, true
}

const (
	// listEvery is how often processes are listed: a thousand times as expensive as reading memory.
	listEvery = 10 * time.Second
	// idleBytes bounds what a card uses without any process, in bytes.
	idleBytes = 64 << 20
)

// otherProcesses returns how much of each card's memory is held by processes outside this training:
// not this process, nor one that it started, nor, under a launcher of several (torchrun,
// accelerate), one that the launcher started.
//
// In a container the driver may list processes by the host's numbers, or none at all. A PID that
// /proc lacks, or an empty list on a card in use, shows that; the figure is then unknown.
type otherProcesses struct {
	tree  tree
	top   int // the process whose tree is this training
	now   func() time.Time
	at    []time.Time // of the last listing of each card
	bytes []float64
}

func newOtherProcesses(root string, gpus int) otherProcesses {
	o := otherProcesses{tree: newTree(root), top: os.Getpid(), now: time.Now,
		at: make([]time.Time, gpus), bytes: make([]float64, gpus)}
	if _, launched := os.LookupEnv("LOCAL_RANK"); launched && os.Getppid() > 1 {
		o.top = os.Getppid()
	}
	return o
}

// of returns the bytes on card i, listing its processes periodically.
func (o *otherProcesses) of(i int, u *unit) float64 {
	if current := o.now(); o.at[i].IsZero() || current.Sub(o.at[i]) >= listEvery {
		o.at[i] = current
		o.bytes[i] = o.count(u)
	}
	return o.bytes[i]
}

func (o *otherProcesses) count(u *unit) float64 {
	memory, err := u.memory()
	if err != nil {
		return math.NaN()
	}
	listed := u.processes()
	if len(listed) == 0 {
		if memory.used > idleBytes {
			return math.NaN()
		}
		return 0
	}
	return o.foreign(listed, append(o.tree.descendants(o.top), o.top))
}

func (o *otherProcesses) foreign(listed []profile.Process, ours []int) float64 {
	sum := 0.0
	for _, p := range listed {
		if _, err := os.Stat(o.tree.real(procOf(int(p.PID)))); err != nil {
			return math.NaN()
		}
		if slices.Contains(ours, int(p.PID)) {
			continue
		}
		if p.MemoryBytes == nil {
			return math.NaN()
		}
		sum += float64(*p.MemoryBytes)
	}
	return sum
}
