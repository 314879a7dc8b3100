package hardware

import (
	"os"
	"path"
	"strconv"
	"strings"
)

// Strategy for the process tree.
//
// /proc/<pid>/task/<tid>/children lists the processes that a thread started, so a tree of a few workers takes a few small
// files however many processes the host has. Kernels without it (CONFIG_PROC_CHILDREN) list none, and then the parents of
// all processes are read, at most maxScanned. What a worker shares with its parent counts for both, as in top: telling it
// apart (smaps_rollup) walks page tables, milliseconds for a large process.

const (
	maxTree    = 1024 // processes of a tree
	maxThreads = 4096 // of one process
	maxScanned = 8192 // processes of the host that are asked for their parent
)

// descendants lists the processes below one, without itself.
func (t tree) descendants(pid int) []int {
	if _, err := os.Stat(t.real(path.Join(procOf(pid), "task", strconv.Itoa(pid), "children"))); err != nil {
		return t.descendantsByParent(pid)
	}
	var found []int
	for queue := []int{pid}; len(queue) > 0 && len(found) < maxTree; queue = queue[1:] {
		for _, thread := range t.numbersIn(path.Join(procOf(queue[0]), "task"), maxThreads) {
			children := t.read(path.Join(procOf(queue[0]), "task", strconv.Itoa(thread), "children"), sizeStat)
			for _, child := range strings.Fields(children) {
				if number, err := strconv.Atoi(child); err == nil {
					found, queue = append(found, number), append(queue, number)
				}
			}
		}
	}
	return found[:min(len(found), maxTree)]
}

// descendantsByParent asks every process for its parent.
func (t tree) descendantsByParent(pid int) []int {
	parents := map[int]int{}
	for _, number := range t.numbersIn("/proc", maxScanned) {
		if p, ok := t.process(procOf(number)); ok {
			parents[number] = p.parent
		}
	}
	var found []int
	for number := range parents {
		at := number
		for range maxLevels { // a loop of parents cannot be, unless processes came and went meanwhile
			if at = parents[at]; at == pid || at == 0 {
				break
			}
		}
		if at == pid && len(found) < maxTree {
			found = append(found, number)
		}
	}
	return found
}

func procOf(pid int) string { return path.Join("/proc", strconv.Itoa(pid)) }

// numbersIn lists the entries of a folder that are numbers.
func (t tree) numbersIn(folder string, most int) []int {
	file, err := os.Open(t.real(folder))
	if err != nil {
		return nil
	}
	defer file.Close()
	names, _ := file.Readdirnames(most)
	var found []int
	for _, name := range names {
		if number, err := strconv.Atoi(name); err == nil {
			found = append(found, number)
		}
	}
	return found
}

// process is what /proc/<pid>/stat tells: processor time of all threads in ticks, resident memory in bytes.
type process struct {
	parent          int
	ticks, resident uint64
}

func (t tree) process(folder string) (process, bool) {
	return parseProcess(t.read(path.Join(folder, "stat"), sizeStat), uint64(os.Getpagesize()))
}

// parseProcess reads "12 (a name) with) S 1 …". The name may hold anything; the last parenthesis ends it.
func parseProcess(text string, page uint64) (p process, ok bool) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 { // proc_pid_stat(5) numbers them from 1, of which two come before the state
		return p, false
	}
	parent, err := strconv.Atoi(fields[1])
	user, err2 := strconv.ParseUint(fields[11], 10, 63)
	system, err3 := strconv.ParseUint(fields[12], 10, 63)
	pages, err4 := strconv.ParseUint(fields[21], 10, 64)
	ok = err == nil && err2 == nil && err3 == nil && err4 == nil && pages < maxHostMemory/page
	return process{parent, user + system, pages * page}, ok
}
