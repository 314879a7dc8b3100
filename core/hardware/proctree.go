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
		if parent, ok := parentOf(t.read(path.Join(procOf(number), "stat"), sizeValue*4)); ok {
			parents[number] = parent
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

// parentOf reads /proc/<pid>/stat: "12 (a name) with) S 1 …". The name may hold anything; the last parenthesis ends it.
func parentOf(text string) (int, bool) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return 0, false
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}

// residentOf reads the second number of /proc/<pid>/statm, in bytes.
func residentOf(text string, page uint64) (uint64, bool) {
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	return pages * page, err == nil && pages < maxHostMemory/page
}
