package dataset

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The cache's table is one file of pages of 4 KiB: a header, then 2^bits pages of slots. A key's
// page is told by its highest bits, so that a table of twice as many pages is made by splitting
// each in two. Readers need no lock: each slot has a checksum, and a larger table replaces the file
// in one step. Writers hold the lock of the folder.
const (
	pageSize     = 4096
	slotsAPage   = pageSize / slotSize
	maxTableBits = 16 // 256 MiB, three million files
	inMemory     = 16 << 20
)

const tableMagic = "asrconfig scan 1"

// table is an open one.
type table struct {
	file *os.File
	bits uint32
	all  []byte // its pages, where they are few; nil otherwise
}

var errNoTable = errors.New("not a table of this version")

// openTable opens the table at path.
func openTable(path string, flag int) (*table, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	t := &table{file: f}
	if err := t.check(); err != nil {
		f.Close()
		return nil, err
	}
	return t, nil
}

func (t *table) check() error {
	st, err := t.file.Stat()
	if err != nil {
		return err
	}
	var head [24]byte
	if t.readPage(head[:], -1) != nil {
		return errNoTable
	}
	t.bits = binary.LittleEndian.Uint32(head[16:])
	if head != tableHead(t.bits) || t.bits > maxTableBits || st.Size() != tableSize(t.bits) {
		return errNoTable
	}
	return nil
}

func tableHead(bits uint32) (head [24]byte) {
	copy(head[:], tableMagic)
	binary.LittleEndian.PutUint32(head[16:], bits)
	binary.LittleEndian.PutUint32(head[20:], crc32.Checksum(head[:20], castagnoli))
	return head
}

func tableSize(bits uint32) int64 { return pageSize * (1 + int64(1)<<bits) }

// load takes a small table into memory.
func (t *table) load() {
	if size := tableSize(t.bits) - pageSize; size <= inMemory {
		all := make([]byte, size)
		if _, err := t.file.ReadAt(all, pageSize); err == nil {
			t.all = all
		}
	}
}

// pageOf is the number of the page for a key.
func (t *table) pageOf(key uint64) int64 { return int64(key >> (64 - t.bits)) }

// readPage reads one page, or its beginning; -1 is the header.
func (t *table) readPage(into []byte, number int64) error {
	_, err := t.file.ReadAt(into, pageSize*(1+number))
	return err
}

// page returns one page, in scratch or in memory.
func (t *table) page(number int64, scratch *[pageSize]byte) ([]byte, error) {
	if t.all != nil {
		return t.all[pageSize*number : pageSize*(number+1)], nil
	}
	return scratch[:], t.readPage(scratch[:], number)
}

// find returns the slot of a key, nil without one.
func (t *table) find(key uint64, scratch *[pageSize]byte) []byte {
	page, err := t.page(t.pageOf(key), scratch)
	if err != nil {
		return nil
	}
	for i := range slotsAPage {
		if slot := page[i*slotSize : (i+1)*slotSize]; keyOf(slot) == key && intact(slot) {
			return slot
		}
	}
	return nil
}

// errFull says that a page has no room and that the table may grow.
var errFull = errors.New("a page is full")

// insert writes slots, sorted by key, page by page.
func (t *table) insert(slots [][]byte) error {
	var scratch [pageSize]byte
	for len(slots) > 0 {
		number := t.pageOf(keyOf(slots[0]))
		n := 1
		for n < len(slots) && t.pageOf(keyOf(slots[n])) == number {
			n++
		}
		if err := t.readPage(scratch[:], number); err != nil {
			return err
		}
		for _, slot := range slots[:n] {
			offset := place(scratch[:], keyOf(slot), t.bits < maxTableBits)
			if offset < 0 {
				return errFull
			}
			copy(scratch[offset:], slot)
		}
		if _, err := t.file.WriteAt(scratch[:], pageSize*(1+number)); err != nil {
			return err
		}
		slots = slots[n:]
	}
	return nil
}

// place returns where in a page the slot of a key goes: where it was, where nothing good is, or, in
// a table that cannot grow, where the longest unused one is. It is -1 without a place.
func place(page []byte, key uint64, mayGrow bool) int {
	free, oldest := -1, 0
	for offset := 0; offset+slotSize <= pageSize; offset += slotSize {
		slot := page[offset : offset+slotSize]
		switch {
		case !intact(slot):
			free = offset
		case keyOf(slot) == key:
			return offset
		case seenOf(slot) < seenOf(page[oldest:]):
			oldest = offset
		}
	}
	if free < 0 && !mayGrow {
		return oldest
	}
	return free
}

// newTable writes a table of empty pages, or one with twice the pages of old, beside path and puts
// it there. The caller holds the lock, so that whatever else has such a name was left by a killed
// process.
func newTable(path string, old *table) (err error) {
	folder, name := filepath.Split(path)
	removeAbandoned(folder, name)
	f, err := os.CreateTemp(folder, name+".*.new")
	if err != nil {
		return err
	}
	defer func() {
		if f.Close(); err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	bits := uint32(0)
	if old != nil {
		bits = old.bits + 1
	}
	head := tableHead(bits)
	if _, err := f.Write(head[:]); err != nil {
		return err
	}
	if err := f.Truncate(tableSize(bits)); err != nil {
		return err
	}
	if old != nil {
		if err := old.split(f); err != nil {
			return err
		}
	}
	return os.Rename(f.Name(), path)
}

// removeAbandoned removes unfinished tables; one that stays costs its room alone.
func removeAbandoned(folder, name string) {
	files, _ := os.ReadDir(folder)
	for _, f := range files {
		if strings.HasPrefix(f.Name(), name+".") && strings.HasSuffix(f.Name(), ".new") {
			_ = os.Remove(filepath.Join(folder, f.Name()))
		}
	}
}

// split writes each page of t as two.
func (t *table) split(into *os.File) error {
	var page [pageSize]byte
	for number := range int64(1) << t.bits {
		if err := t.readPage(page[:], number); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		var halves [2 * pageSize]byte
		var used [2]int
		for i := range slotsAPage {
			slot := page[i*slotSize : (i+1)*slotSize]
			if intact(slot) {
				half := keyOf(slot) >> (63 - t.bits) & 1
				copy(halves[int(half)*pageSize+used[half]*slotSize:], slot)
				used[half]++
			}
		}
		if _, err := into.WriteAt(halves[:], pageSize*(1+2*number)); err != nil {
			return err
		}
	}
	return nil
}
