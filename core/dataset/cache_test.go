package dataset

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
func metered(t *testing.T, c *openedCache, entries []entry) *Clips {
	t.Helper()
	if c != nil {
		c.start = c.start.Add(10 * time.Second)
	}
	clips := &Clips{rows: make([]row, len(entries))}
	readers := func() *reader { return &reader{Clips: clips, cache: c.worker()} }
	require.NoError(t, measureAll(context.Background(), entries, clips.rows, 2, new(Progress), readers))
	return clips
}

// slotsIn counts the files that the cache knows.
func slotsIn(t *testing.T, folder string) int {
	t.Helper()
	return len(openCache(Cache{Folder: folder}, 1).offsets)
}

// forge changes the durations in the cache, to tell its answers from those of the files.
func forge(t *testing.T, folder string, path string, seconds float64) {
	t.Helper()
	c := openCache(Cache{Folder: folder, Mark: "test"}, 1)
	u := c.worker()
	var m cachedFile
	at, isKnown := c.offsets[u.key(path)]
	require.True(t, isKnown)
	require.True(t, m.decode(c.slots[at:at+slotSize]))
	m.duration = seconds
	u.pending = make([]byte, slotSize)
	require.True(t, m.encode(u.pending))
	u.flush(true)
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
	_, err := Scan(context.Background(), Request{Folder: root, Options: Options{Cache: Cache{Folder: folder}}}, new(Progress))
	require.NoError(t, err)
	assert.NoFileExists(t, filepath.Join(folder, cacheName), "written within the last two seconds")
}

func TestBrokenCachesAreReadOn(t *testing.T) {
	root := tree(t, map[string][]byte{"a.wav": wavOf(16000), "b.wav": wavOf(32000)})
	good := t.TempDir()
	cachedScan(t, good, Request{Folder: root})
	whole, err := os.ReadFile(filepath.Join(good, cacheName))
	require.NoError(t, err)
	require.Len(t, whole, 2*slotSize)
	damage := func(at int) []byte {
		b := append([]byte(nil), whole...)
		b[at] ^= 0xff
		return b
	}
	for name, b := range map[string][]byte{
		"empty": {}, "cut": whole[:len(whole)-1], "longer": append(whole, 0), "cut before more": append(whole[:50:50], whole...),
		"key": damage(0), "time": damage(16), "duration": damage(39), "check": damage(checkAt), "codec": damage(codecAt),
		"something else": bytes.Repeat([]byte("asrconfig"), 1<<16),
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, cacheName), b, 0o600))
			for range 2 {
				clips := cachedScan(t, folder, Request{Folder: root})
				assert.Equal(t, []float64{1, 2}, []float64{clips.rows[0].duration, clips.rows[1].duration})
			}
			assert.Equal(t, 2, slotsIn(t, folder))
		})
	}
}

// TestScansRewriteALongCacheAtOnce: at every moment the cache is whole, and in the end there is no
// other file.
func TestScansRewriteALongCacheAtOnce(t *testing.T) {
	before := maxSlots
	maxSlots = 10_000
	t.Cleanup(func() { maxSlots = before })
	raw := slotsOf(t, maxSlots+1, 1)
	for range 10 {
		folder := t.TempDir()
		file := filepath.Join(folder, cacheName)
		require.NoError(t, os.WriteFile(file, raw, 0o600))
		var wait sync.WaitGroup
		for range 8 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				c := &openedCache{Cache: Cache{Folder: folder}, slots: raw}
				assert.False(t, c.index())
				c.rewrite()
				content, err := os.ReadFile(file)
				assert.NoError(t, err)
				assert.True(t, bytes.Equal(raw[len(raw)-maxSlots/2*slotSize:], content), "the newer half, in its order")
			}()
		}
		wait.Wait()
		names, err := os.ReadDir(folder)
		require.NoError(t, err)
		assert.Len(t, names, 1)
	}
}

func TestCacheThatCannotBeUsed(t *testing.T) {
	root := tree(t, map[string][]byte{"a.wav": wavOf(16000)})
	file := filepath.Join(root, "a.wav")
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, cacheName), 0o700))
	for _, f := range []string{file, filepath.Join(file, "below"), folder, "/proc/none"} {
		assert.Equal(t, 1.0, cachedScan(t, f, Request{Folder: root}).rows[0].duration, f)
	}
}

// slotsOf makes slots with random keys, the n-th of them n seconds long.
func slotsOf(t *testing.T, n int, seed uint64) []byte {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(n), seed))
	raw := make([]byte, n*slotSize)
	for i := range n {
		r := cachedFile{key: random.Uint64() | 1, duration: float64(i + 1), stat: media.Stat{Size: int64(i)}, kind: Kind{16000, 1, 16, "flac", "header"}}
		require.True(t, r.encode(raw[i*slotSize:(i+1)*slotSize]))
	}
	return raw
}

func TestWritersDoNotLoseEachOthersFiles(t *testing.T) {
	folder := t.TempDir()
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for slots := range slices.Chunk(slotsOf(t, 400, uint64(i)), 100*slotSize) {
				u := openCache(Cache{Folder: folder}, 1).worker()
				u.pending = slots
				u.flush(true)
			}
		}()
	}
	wait.Wait()
	assert.Equal(t, 6*400, slotsIn(t, folder))
}

func TestSlotsThatCannotBe(t *testing.T) {
	var slot [slotSize]byte
	good := cachedFile{key: 1, duration: 1, kind: Kind{16000, 1, 16, "pcm_s16le", "header"}}
	require.True(t, good.encode(slot[:]))
	var back cachedFile
	require.True(t, back.decode(slot[:]))
	assert.Equal(t, good, back)
	for _, k := range []Kind{{16000, 1, 16, strings.Repeat("x", codecLimit+1), "header"}, {16000, 1 << 16, 16, "x", "header"}, {16000, 1, 256, "x", "header"}, {1 << 32, 1, 1, "x", "header"}, {16000, 1, 16, "x", "guessed"}} {
		bad := good
		bad.kind = k
		assert.False(t, bad.encode(slot[:]), k)
	}
	slot[63] = 200
	assert.False(t, back.decode(slot[:]), "an unknown method")
	for _, seconds := range []float64{0, -1} {
		bad := good
		bad.duration = seconds
		require.True(t, bad.encode(slot[:]))
		assert.False(t, back.decode(slot[:]))
	}
}

// FuzzCache: whatever the cache's file holds, what is found in it is intact.
func FuzzCache(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		c := &openedCache{slots: content}
		c.index()
		for key, at := range c.offsets {
			require.True(t, intact(content[at:at+slotSize]))
			require.Equal(t, key, keyOf(content[at:]))
		}
	})
}
