package dataset

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// cachedScan measures a source with the cache in folder.
func cachedScan(t *testing.T, folder string, r Request) *Clips {
	t.Helper()
	entries, _, err := r.list(context.Background())
	require.NoError(t, err)
	return metered(t, openCache(Cache{Folder: folder, Mark: "test"}, len(entries)), entries)
}

// metered measures entries with a cache whose clock is ten seconds ahead: files that a test wrote a
// moment ago are old then.
func metered(t *testing.T, c *cache, entries []entry) *Clips {
	t.Helper()
	if c != nil {
		c.start = c.start.Add(10 * time.Second)
	}
	clips := &Clips{rows: make([]row, len(entries))}
	meters := func() meter { return &reader{Clips: clips, cache: c.user()} }
	require.NoError(t, measureAll(context.Background(), entries, clips.rows, 2, new(Progress), meters))
	return clips
}

// slotsIn counts the good slots and checks that they lie where they are looked for.
func slotsIn(t *testing.T, folder string) (n int) {
	t.Helper()
	table, err := openTable(filepath.Join(folder, tableName), os.O_RDONLY)
	require.NoError(t, err)
	defer table.file.Close()
	var page [pageSize]byte
	for number := range int64(1) << table.bits {
		require.NoError(t, table.readPage(page[:], number))
		for at := 0; at+slotSize <= pageSize; at += slotSize {
			if intact(page[at : at+slotSize]) {
				assert.Equal(t, number, table.pageOf(keyOf(page[at:])))
				n++
			}
		}
	}
	return n
}

// forge changes the durations in the cache, to tell its answers from those of the files.
func forge(t *testing.T, folder string, path string, seconds float64) {
	t.Helper()
	c := openCache(Cache{Folder: folder, Mark: "test"}, 1)
	u := c.user()
	var m remembered
	slot := c.table.find(u.key(path), &u.page)
	require.NotNil(t, slot)
	require.True(t, m.get(slot, u.codecs))
	m.duration = seconds
	copied := make([]byte, slotSize)
	require.True(t, m.put(copied))
	require.NoError(t, store(context.Background(), folder, copied))
}

func TestCachedScanGivesTheSame(t *testing.T) {
	files := map[string][]byte{"empty.wav": nil, "cut.wav": wavOf(16000)[:20044]}
	for i := range 300 {
		files[fmt.Sprintf("%d/%03d.wav", i%7, i)] = wavOf(100 + i)
	}
	root, folder := tree(t, files), filepath.Join(t.TempDir(), "made")
	plain := scan(t, Request{Folder: root}).Clips
	first := cachedScan(t, folder, Request{Folder: root})
	assert.Equal(t, 301, slotsIn(t, folder), "all but the empty one")
	again := cachedScan(t, folder, Request{Folder: root})
	assert.Equal(t, all(plain), all(first))
	assert.Equal(t, all(plain), all(again))
	for i := range plain.rows {
		assert.Equal(t, plain.rows[i].digest, again.rows[i].digest)
	}
	forge(t, folder, root+"/cut.wav", 1234)
	entries := []entry{{path: root + "/cut.wav"}}
	assert.Equal(t, 1234.0, metered(t, openCache(Cache{folder, "test"}, 1), entries).rows[0].duration, "it is the cache that answers")
	assert.Equal(t, 1.0, metered(t, openCache(Cache{folder, "test"}, 1), entries).rows[0].claimed())
	assert.Equal(t, 0.625, metered(t, openCache(Cache{folder, "other library"}, 1), entries).rows[0].duration)
	t.Chdir(root)
	assert.Equal(t, 1234.0, metered(t, openCache(Cache{folder, "test"}, 1), []entry{{path: "cut.wav"}}).rows[0].duration, "the same file by a relative path")
}

func TestChangedFilesAreMeasuredAgain(t *testing.T) {
	root, folder := tree(t, map[string][]byte{"a.wav": wavOf(16000)}), t.TempDir()
	path := filepath.Join(root, "a.wav")
	seconds := func() float64 { return cachedScan(t, folder, Request{Folder: root}).rows[0].duration }
	require.Equal(t, 1.0, seconds())
	forge(t, folder, path, 99)
	require.Equal(t, 99.0, seconds())
	st, err := os.Stat(path)
	require.NoError(t, err)

	// The same size and the same time of change, as rsync and tar leave them: the system's own time
	// gives it away.
	half := wavOf(16000)
	binary.LittleEndian.PutUint32(half[24:], 32000)
	binary.LittleEndian.PutUint32(half[28:], 64000)
	require.NoError(t, os.WriteFile(path, half, 0o600))
	require.NoError(t, os.Chtimes(path, st.ModTime(), st.ModTime()))
	assert.Equal(t, 0.5, seconds())
	assert.Equal(t, 1, slotsIn(t, folder), "the new takes the place of the old")

	require.NoError(t, os.WriteFile(path, wavOf(32000), 0o600))
	assert.Equal(t, 2.0, seconds())
	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	r := cachedScan(t, folder, Request{Folder: root}).At(0)
	assert.Contains(t, r.Error, "is a pipe")
}

func TestFreshFilesAreNotCached(t *testing.T) {
	root, folder := tree(t, map[string][]byte{"a.wav": wavOf(16000)}), t.TempDir()
	_, err := Scan(context.Background(), Request{Folder: root, Options: Options{Cache: Cache{Folder: folder}}}, nil)
	require.NoError(t, err)
	assert.NoFileExists(t, filepath.Join(folder, tableName), "written within the last two seconds")
}

func TestBrokenTablesAreRepaired(t *testing.T) {
	root := tree(t, map[string][]byte{"a.wav": wavOf(16000), "b.wav": wavOf(32000)})
	good := t.TempDir()
	cachedScan(t, good, Request{Folder: root})
	whole, err := os.ReadFile(filepath.Join(good, tableName))
	require.NoError(t, err)
	damage := func(at int) []byte {
		b := append([]byte(nil), whole...)
		b[at] ^= 0xff
		return b
	}
	first := pageSize
	for name, b := range map[string][]byte{
		"empty": {}, "cut": whole[:len(whole)-1], "header alone": whole[:pageSize], "longer": append(whole, 0), "magic": damage(0), "bits": damage(16),
		"key": damage(first), "time": damage(first + 16), "duration": damage(first + 39), "check": damage(first + checkAt), "codec": damage(first + codecAt),
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, tableName), b, 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(folder, tableName+".7.new"), b, 0o600), "what a killed process left")
			for range 2 {
				clips := cachedScan(t, folder, Request{Folder: root})
				assert.Equal(t, []float64{1, 2}, []float64{clips.rows[0].duration, clips.rows[1].duration})
			}
			assert.Equal(t, 2, slotsIn(t, folder))
			if name != "key" && name != "time" && name != "duration" && name != "check" && name != "codec" {
				// a new table was made
				assert.NoFileExists(t, filepath.Join(folder, tableName+".7.new"))
			}
		})
	}
}

func TestCacheThatCannotBeUsed(t *testing.T) {
	root := tree(t, map[string][]byte{"a.wav": wavOf(16000)})
	file := filepath.Join(root, "a.wav")
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, tableName), 0o700))
	unlock, err := lock(context.Background(), filepath.Join(t.TempDir(), lockName))
	require.NoError(t, err)
	defer unlock()
	for _, f := range []string{file, filepath.Join(file, "below"), folder, "/proc/none"} {
		assert.Equal(t, 1.0, cachedScan(t, f, Request{Folder: root}).rows[0].duration, f)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), lockName)
	unlock, err := lock(context.Background(), path)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = lock(ended, path)
	require.ErrorIs(t, err, errLocked)
	unlock()
	unlock, err = lock(ended, path)
	require.NoError(t, err)
	unlock()
}

// slotsOf makes slots with random keys, the n-th of them n seconds long.
func slotsOf(t *testing.T, n int, seen uint32) []byte {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(n), uint64(seen)))
	raw := make([]byte, n*slotSize)
	for i := range n {
		r := remembered{key: random.Uint64() | 1, duration: float64(i + 1), seen: seen, stat: media.Stat{Size: int64(i)}, kind: kind{16000, 1, 16, "flac", "header"}}
		require.True(t, r.put(raw[i*slotSize:(i+1)*slotSize]))
	}
	return raw
}

func TestTableGrows(t *testing.T) {
	folder := t.TempDir()
	raw := slotsOf(t, 5000, 1)
	for part := 0; part < len(raw); part += 700 * slotSize {
		require.NoError(t, store(context.Background(), folder, raw[part:min(part+700*slotSize, len(raw))]))
	}
	assert.Equal(t, 5000, slotsIn(t, folder))
	table, err := openTable(filepath.Join(folder, tableName), os.O_RDONLY)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, table.bits, uint32(7))
	for _, loaded := range []bool{false, true} {
		if loaded {
			table.load()
		}
		var scratch [pageSize]byte
		for i := range 5000 {
			slot := table.find(keyOf(raw[i*slotSize:]), &scratch)
			require.NotNil(t, slot)
			assert.Equal(t, raw[i*slotSize:(i+1)*slotSize], slot)
		}
		assert.Nil(t, table.find(12345, &scratch))
	}
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Len(t, files, 2, "the table and its lock: %v", files)
}

// TestFullPage: in a table that may not grow, the longest unused make room.
func TestFullPage(t *testing.T) {
	page := make([]byte, pageSize)
	for i := range slotsAPage {
		r := remembered{key: uint64(i + 1), duration: 1, seen: uint32(100 + (i+20)%slotsAPage), kind: kind{method: "header"}}
		at := place(page, r.key, true)
		require.GreaterOrEqual(t, at, 0)
		require.True(t, r.put(page[at:at+slotSize]))
	}
	assert.Equal(t, -1, place(page, 999, true))
	oldest := place(page, 999, false)
	assert.EqualValues(t, 100, seenOf(page[oldest:]))
	assert.Equal(t, uint64(slotsAPage-20+1), keyOf(page[oldest:]))
	assert.Equal(t, uint64(7), keyOf(page[place(page, 7, true):]), "a key's own slot is taken again")
}

func TestWritersDoNotLoseEachOthersFiles(t *testing.T) {
	folder := t.TempDir()
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			raw := slotsOf(t, 400, uint32(i+1))
			for part := 0; part < len(raw); part += 100 * slotSize {
				assert.NoError(t, store(context.Background(), folder, raw[part:part+100*slotSize]))
			}
		}()
	}
	wait.Wait()
	assert.Equal(t, 6*400, slotsIn(t, folder))
}

func TestSlotsThatCannotBe(t *testing.T) {
	var slot [slotSize]byte
	good := remembered{key: 1, duration: 1, kind: kind{16000, 1, 16, "pcm_s16le", "header"}}
	require.True(t, good.put(slot[:]))
	var back remembered
	require.True(t, back.get(slot[:], map[string]string{}))
	assert.Equal(t, good, back)
	for _, k := range []kind{{16000, 1, 16, strings.Repeat("x", codecLimit+1), "header"}, {16000, 1 << 16, 16, "x", "header"}, {16000, 1, 256, "x", "header"}, {1 << 32, 1, 1, "x", "header"}, {16000, 1, 16, "x", "guessed"}} {
		bad := good
		bad.kind = k
		assert.False(t, bad.put(slot[:]), k)
	}
	slot[63] = 200
	assert.False(t, back.get(slot[:], map[string]string{}), "an unknown method")
	for _, seconds := range []float64{0, -1} {
		bad := good
		bad.duration = seconds
		require.True(t, bad.put(slot[:]))
		assert.False(t, back.get(slot[:], map[string]string{}))
	}
}

// FuzzTable: whatever the table's file holds, a scan is right.
func FuzzTable(f *testing.F) {
	f.Add(uint32(0), []byte{})
	f.Fuzz(func(t *testing.T, bits uint32, content []byte) {
		path := filepath.Join(t.TempDir(), tableName)
		head := tableHead(bits)
		file := append(head[:], make([]byte, pageSize-len(head))...)
		require.NoError(t, os.WriteFile(path, append(file, content...), 0o600))
		table, err := openTable(path, os.O_RDONLY)
		if err != nil {
			return
		}
		defer table.file.Close()
		var scratch [pageSize]byte
		for key := range uint64(64) {
			if slot := table.find(key<<58|1, &scratch); slot != nil {
				require.True(t, intact(slot))
			}
		}
	})
}
