package monitor

import (
	"bufio"
	"os"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const someMaps = `00400000-00500000 r--p 00000000 fe:01 11 /usr/bin/python
7f0000000000-7f0000100000 r--p 00000000 fe:01 22 /a folder/_core.so
7f0000100000-7f0000200000 r-xp 00100000 fe:01 22 /a folder/_core.so
7f0000200000-7f0000300000 rw-p 00200000 fe:01 22 /a folder/_core.so
7f0000300000-7f0000400000 rw-p 00000000 00:00 0
7f0000400000-7f0000500000 r-xp 00000000 fe:01 33 /lib/libc.so.6
`

func TestTheMappingsOfOneFile(t *testing.T) {
	at := func(address uint64) []mapping {
		return ofOneFile(bufio.NewScanner(strings.NewReader(someMaps)), address)
	}
	assert.Equal(t, []mapping{
		{start: 0x7f0000000000, end: 0x7f0000100000, file: "fe:01 22"},
		{start: 0x7f0000100000, end: 0x7f0000200000, file: "fe:01 22"},
		{start: 0x7f0000200000, end: 0x7f0000300000, file: "fe:01 22", writable: true},
	}, at(0x7f0000150000))
	assert.Len(t, at(0x7f0000400000), 1)
	assert.Len(t, at(0x400000), 1)
	for _, nowhere := range []uint64{0, 0x600000, 0x7f0000350000, 0x7f0000500000} {
		assert.Empty(t, at(nowhere), "%x", nowhere)
	}
}

func TestLinesWithoutAFileAreNoMapping(t *testing.T) {
	for _, line := range []string{"", "7f00-7f80 rw-p 0 00:00 0", "7f00-7f80 rw-p 0 00:00 0 [heap]", "x-7f80 r--p 0 fe:01 1 /a", "7f80-7f00 r--p 0 fe:01 1 /a"} {
		_, ok := parseMapping(line)
		assert.False(t, ok, line)
	}
}

// A page that was written to is no longer the file's, and giving it back would lose what was written.
func TestAChangedPageKeepsAMapping(t *testing.T) {
	name := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(name, make([]byte, 4*os.Getpagesize()), 0o600))
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	mapped, err := unix.Mmap(int(file.Fd()), 0, 4*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { _ = unix.Munmap(mapped) }()
	start := uint64(uintptr(unsafe.Pointer(&mapped[0])))
	m := mapping{start: start, end: start + uint64(len(mapped))}
	assert.Zero(t, mapped[0])
	assert.True(t, m.unchanged())
	mapped[os.Getpagesize()] = 1
	assert.False(t, m.unchanged())
}

func TestReleasedPagesAreMappedAgainWhenUsed(t *testing.T) {
	before := presentCode(t)
	releaseFilePages()
	assert.Less(t, presentCode(t), before)
	assert.Equal(t, "abc", strings.ToLower("ABC"))
}

// presentCode counts the pages of this program's code that are in memory.
func presentCode(t *testing.T) (pages int) {
	maps, err := os.Open("/proc/self/maps")
	require.NoError(t, err)
	defer maps.Close()
	pagemap, err := os.Open("/proc/self/pagemap")
	require.NoError(t, err)
	defer pagemap.Close()
	page := uint64(os.Getpagesize())
	for _, m := range ofOneFile(bufio.NewScanner(maps), uint64(reflect.ValueOf(releaseFilePages).Pointer())) {
		entries := make([]byte, (m.end-m.start)/page*8)
		_, err := pagemap.ReadAt(entries, int64(m.start/page*8))
		require.NoError(t, err)
		for i := 7; i < len(entries); i += 8 {
			if !m.writable && entries[i]&0x80 != 0 {
				pages++
			}
		}
	}
	return pages
}
