package monitor

import (
	"bufio"
	"encoding/binary"
	"os"
	"reflect"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Bits of an entry of /proc/<pid>/pagemap (admin-guide/mm/pagemap.rst).
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
)

// mapping is a line of /proc/<pid>/maps.
type mapping struct {
	start, end uint64
	writable   bool
	file       string // device and inode
}

// releaseFilePages gives back the pages of this library's file that are mapped and unchanged, most of which only loading and
// the first calls needed: 6 MiB. What is used again is mapped again from the kernel's cache, 64 KiB at a fault. Mappings with
// a changed page, as of relocated data or under a debugger, stay, and so does everything where the kernel does not tell.
func releaseFilePages() {
	file, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer file.Close()
	for _, m := range ofOneFile(bufio.NewScanner(file), uint64(reflect.ValueOf(releaseFilePages).Pointer())) {
		if !m.writable && m.unchanged() {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(m.start), uintptr(m.end-m.start), unix.MADV_DONTNEED)
		}
	}
}

// ofOneFile gives the mappings of the file that is mapped at an address; those of a library follow each other.
func ofOneFile(lines *bufio.Scanner, address uint64) (found []mapping) {
	for lines.Scan() {
		m, ok := parseMapping(lines.Text())
		if len(found) == 0 || m.file != found[0].file {
			if len(found) > 0 && found[len(found)-1].end > address {
				break
			}
			found = found[:0]
		}
		if ok {
			found = append(found, m)
		}
	}
	if len(found) == 0 || address < found[0].start || address >= found[len(found)-1].end {
		return nil
	}
	return found
}

// parseMapping reads "7f00-7f80 r-xp 00001000 fe:01 1234 /a/library.so"; not ok where no file is mapped.
func parseMapping(line string) (m mapping, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[4] == "0" {
		return m, false
	}
	start, end, _ := strings.Cut(fields[0], "-")
	m = mapping{writable: strings.Contains(fields[1], "w"), file: fields[3] + " " + fields[4]}
	var errStart, errEnd error
	m.start, errStart = strconv.ParseUint(start, 16, 64)
	m.end, errEnd = strconv.ParseUint(end, 16, 64)
	return m, errStart == nil && errEnd == nil && m.start < m.end
}

// unchanged tells whether every page of this process is the file's.
func (m mapping) unchanged() bool {
	file, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return false
	}
	defer file.Close()
	page := uint64(os.Getpagesize())
	entries := make([]byte, (m.end-m.start)/page*8)
	if n, _ := file.ReadAt(entries, int64(m.start/page*8)); n < len(entries) {
		return false
	}
	for ; len(entries) > 0; entries = entries[8:] {
		entry := binary.LittleEndian.Uint64(entries)
		if entry&pageSwapped != 0 || entry&(pagePresent|pageOfFile) == pagePresent {
			return false
		}
	}
	return true
}
