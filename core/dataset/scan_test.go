package dataset

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// wavOf is a 16 kHz mono 16-bit file.
func wavOf(samples int) []byte {
	b := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(36+2*samples))
	b = append(b, "WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(2*samples))
	return append(b, make([]byte, 2*samples)...)
}

// tree writes files under a new folder, by their slashed names.
func tree(t testing.TB, files map[string][]byte) string {
	t.Helper()
	root := t.TempDir()
	for name, b := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, b, 0o600))
	}
	return root
}

func scan(t *testing.T, r Request) Result {
	t.Helper()
	result, err := Scan(context.Background(), r, new(Progress))
	require.NoError(t, err)
	return result
}

// all writes every clip out.
func all(c *Clips) (clips []profile.Clip) {
	for i := range c.Len() {
		clips = append(clips, c.At(i))
	}
	return clips
}

func names(c *Clips, root string) (names []string) {
	for _, clip := range all(c) {
		names = append(names, strings.TrimPrefix(strings.TrimPrefix(clip.Path, root), "/"))
	}
	return names
}

func isFault(t *testing.T, err error, code fault.Code, texts ...string) {
	t.Helper()
	require.Error(t, err)
	f := fault.From(err)
	assert.Equal(t, code, f.Code, f.Message)
	for _, text := range texts {
		assert.Contains(t, f.Message+"\n"+f.Hint, text)
	}
}

func TestFolder(t *testing.T) {
	root := tree(t, map[string][]byte{
		"b/2.wav": wavOf(32000), "b/10.WAV": wavOf(16000), "a.wav": wavOf(8000), "c.wav": []byte("text"), "d.wma": []byte("\x30\x26\xb2\x75\x8e\x66\xcf\x11"),
		"empty.flac": nil, "notes.txt": []byte("x"), ".hidden.wav": wavOf(9), ".cache/x.wav": wavOf(9), "._a.wav": []byte("x"),
	})
	result := scan(t, Request{Folder: root})
	assert.Equal(t, []string{"a.wav", "b/10.WAV", "b/2.wav", "c.wav", "d.wma", "empty.flac"}, names(result.Clips, root))
	d := result.Profile
	assert.Equal(t, 3, d.SampleCount)
	assert.Equal(t, 3, d.MeasuredCount)
	assert.False(t, d.Sampled)
	assert.InDelta(t, 3.5/3, d.MeanS, 1e-12)
	assert.InDelta(t, 3.5/3600, d.TotalHours, 1e-12)
	assert.EqualValues(t, 3.5*16000*4, d.DecodedBytes)
	assert.EqualValues(t, 3*44+2*56000, d.SizeBytes)
	assert.Equal(t, map[string]int{"16000": 3}, d.SampleRates)
	assert.Equal(t, map[string]int{"pcm_s16le": 3}, d.Codecs)
	assert.Equal(t, "folder "+root, d.Source)
	require.Len(t, d.BadFiles, 3)
	assert.Equal(t, profile.BadFile{Path: root + "/c.wav", Error: `is not audio: its content is text`}, d.BadFiles[0])
	assert.Contains(t, d.BadFiles[1].Error, "is Windows Media (ASF), which is not supported yet; convert it")
	assert.Equal(t, "is empty", d.BadFiles[2].Error)
}

func TestFolderLinks(t *testing.T) {
	outside := tree(t, map[string][]byte{"real/one.wav": wavOf(100)})
	root := tree(t, map[string][]byte{"sub/x.wav": wavOf(100)})
	link := func(target, name string) { require.NoError(t, os.Symlink(target, filepath.Join(root, name))) }
	link(root, "sub/loop")
	link(filepath.Join(outside, "real", "one.wav"), "linked.wav")
	link(filepath.Join(outside, "real"), "dir")
	link(filepath.Join(outside, "real"), "dir2")
	link("nowhere.wav", "dangling.wav")
	result := scan(t, Request{Folder: root})
	assert.Equal(t, []string{"dangling.wav", "dir/one.wav", "linked.wav", "sub/x.wav"}, names(result.Clips, root))
	assert.Equal(t, "no such file", result.Clips.At(0).Error)
	assert.Equal(t, 3, result.Profile.MeasuredCount)
}

func TestFolderNames(t *testing.T) {
	root := tree(t, map[string][]byte{"gr\xf6\xdfe.wav": wavOf(100), "größe.wav": wavOf(100), "new\nline.wav": wavOf(100)})
	result := scan(t, Request{Folder: root})
	assert.Equal(t, 3, result.Profile.MeasuredCount)
	assert.Equal(t, []string{"größe.wav", `gr\xf6\xdfe.wav`, "new\nline.wav"}, names(result.Clips, root), "bytes that are no text are shown as escapes")
	_, err := json.Marshal(all(result.Clips))
	require.NoError(t, err)
}

func TestUnreadableSubfolder(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	root := tree(t, map[string][]byte{"a.wav": wavOf(100), "secret/b.wav": wavOf(100)})
	require.NoError(t, os.Chmod(filepath.Join(root, "secret"), 0))
	d := scan(t, Request{Folder: root}).Profile
	assert.Equal(t, 1, d.MeasuredCount)
	assert.Equal(t, []profile.BadFile{{Path: root + "/secret", Error: "folder cannot be read: permission denied"}}, d.BadFiles)
}

func TestNotFilesInAFolder(t *testing.T) {
	root := tree(t, map[string][]byte{"good.wav": wavOf(100), "folder.wav/inside.wav": wavOf(100)})
	require.NoError(t, syscall.Mkfifo(filepath.Join(root, "pipe.wav"), 0o600))
	require.NoError(t, os.Symlink("pipe.wav", filepath.Join(root, "to-pipe.wav")))
	require.NoError(t, os.Symlink("/dev/null", filepath.Join(root, "device.wav")))
	for _, r := range []Request{{Folder: root}, {Paths: []string{root + "/device.wav", root + "/folder.wav/inside.wav", root + "/good.wav", root + "/pipe.wav", root + "/to-pipe.wav"}}} {
		result := scan(t, r)
		assert.Equal(t, []string{"device.wav", "folder.wav/inside.wav", "good.wav", "pipe.wav", "to-pipe.wav"}, names(result.Clips, root))
		for i, bad := range []bool{true, false, false, true, true} {
			want := ""
			if bad {
				want = "is a pipe, socket or device, not a regular file"
			}
			assert.Equal(t, want, result.Clips.At(i).Error)
		}
	}
	listed := scan(t, Request{Paths: []string{root + "/folder.wav"}, AllowEmpty: true})
	assert.Equal(t, "is a folder, not a file", listed.Clips.At(0).Error)
}

func TestPaths(t *testing.T) {
	root := tree(t, map[string][]byte{"a.wav": wavOf(16000), "folder/b.wav": wavOf(8000), "noext": wavOf(4000)})
	at := func(name string) string { return filepath.Join(root, name) }
	result := scan(t, Request{Paths: []string{at("a.wav"), at("folder"), at("noext"), at("missing.wav"), at("a.wav"), at("folder"), ""}})
	assert.Equal(t, []string{"a.wav", "folder/b.wav", "noext", "missing.wav", "a.wav", "folder/b.wav", ""}, names(result.Clips, root))
	assert.Equal(t, 5, result.Profile.MeasuredCount)
	assert.Equal(t, "list of 7 paths", result.Profile.Source)
}

func TestBuffersAndClips(t *testing.T) {
	rows := []PieceRow{bufferRow("x", wavOf(16000)), bufferRow("y", []byte("no")), bufferRow("z", []byte{})}
	result, err := added(t, Ending{Source: "3 buffers"}, rows...)
	require.NoError(t, err)
	assert.Equal(t, []string{"x", "y", "z"}, names(result.Clips, "/"))
	assert.EqualValues(t, 32044, result.Clips.At(0).SizeBytes)
	assert.Equal(t, "is empty", result.Clips.At(2).Error)
	assert.Equal(t, "3 buffers", result.Profile.Source)

	seconds := func(s float64) profile.Clip {
		return profile.Clip{DurationS: &s, SampleRate: 16000, Channels: 1, Codec: "array", Method: "given"}
	}
	rows = nil
	for _, clip := range []profile.Clip{seconds(1), {Path: "odd"}, seconds(math.NaN()), seconds(0), seconds(-1), seconds(math.Inf(1)), seconds(1e300), {Error: "gone"}, seconds(3)} {
		rows = append(rows, PieceRow{Clip: clip})
	}
	result, err = added(t, Ending{Source: "9 arrays"}, rows...)
	require.NoError(t, err)
	assert.Equal(t, 2, result.Profile.MeasuredCount)
	assert.Len(t, result.Profile.BadFiles, 7)
	assert.Equal(t, "9 arrays", result.Profile.Source)
	assert.Equal(t, map[string]int{"array": 2}, result.Profile.Codecs)
	_, err = json.Marshal([]any{result.Profile, all(result.Clips)})
	require.NoError(t, err, "no number that JSON cannot carry")

	population := 100
	result, err = added(t, Ending{Population: &population, Sampled: true}, rows[0])
	require.NoError(t, err)
	d := result.Profile
	assert.Equal(t, []any{100, 1, true}, []any{d.SampleCount, d.MeasuredCount, d.Sampled})
	assert.InDelta(t, 100.0/3600, d.TotalHours, 1e-12)
	result, err = added(t, Ending{Sampled: true}, rows[0])
	require.NoError(t, err)
	assert.Equal(t, []any{1, true}, []any{result.Profile.SampleCount, result.Profile.Sampled})
	population = 1
	_, err = added(t, Ending{Population: &population}, rows[:2]...)
	isFault(t, err, fault.InvalidArgument, "population is 1 with 2 clips")
}

// bufferRow is a row with a file in memory.
func bufferRow(name string, data []byte) PieceRow {
	return PieceRow{Clip: profile.Clip{Path: name}, Data: data}
}

// added sums up rows that come one by one.
func added(t *testing.T, e Ending, rows ...PieceRow) (Result, error) {
	t.Helper()
	c := NewCollection(Options{})
	require.NoError(t, c.Add(t.Context(), &Piece{Rows: rows}, new(Progress)))
	return c.Finish(t.Context(), e)
}

func TestRefusedRequests(t *testing.T) {
	zero := 0
	root := tree(t, map[string][]byte{"readme.txt": []byte("x"), "f/bad.wav": nil, "f/worse.wav": []byte("hi")})
	cases := []struct {
		name  string
		r     Request
		code  fault.Code
		texts []string
	}{
		{"no source", Request{}, fault.InvalidArgument, []string{"0 sources given"}},
		{"two sources", Request{Folder: root, Paths: []string{"x"}}, fault.InvalidArgument, []string{"2 sources given"}},
		{"sample of 0", Request{Folder: root, SampleSize: &zero}, fault.InvalidArgument, []string{"sample_size is 0"}},
		{"workers -1", Request{Folder: root, Options: Options{Workers: -1}}, fault.InvalidArgument, []string{"workers is -1"}},
		{"missing folder", Request{Folder: root + "/nope"}, fault.NotFound, []string{"folder " + root + "/nope", "no such file"}},
		{"file as folder", Request{Folder: root + "/readme.txt"}, fault.InvalidArgument, []string{"is not a folder"}},
		{"empty folder", Request{Folder: t.TempDir()}, fault.EmptyDataset, []string{"no audio in folder", ".wav", ".flac"}},
		{"only bad files", Request{Folder: root}, fault.EmptyDataset, []string{"2 files, none can be used", "bad.wav: is empty", "worse.wav: is not audio"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Scan(context.Background(), c.r, new(Progress))
			isFault(t, err, c.code, c.texts...)
		})
	}
	d := scan(t, Request{Folder: root, AllowEmpty: true}).Profile
	assert.Equal(t, 0, d.MeasuredCount)
	assert.Len(t, d.BadFiles, 2)
}

func TestSample(t *testing.T) {
	files := map[string][]byte{}
	for i := range 400 {
		files[fmt.Sprintf("%03d.wav", i)] = wavOf(16000)
		if i%4 == 3 {
			files[fmt.Sprintf("%03d.wav", i)] = nil
		}
	}
	root := tree(t, files)
	size := 100
	first := scan(t, Request{Folder: root, SampleSize: &size, Options: Options{Seed: 7, Workers: 1}})
	require.Equal(t, 100, first.Clips.Len())
	assert.IsIncreasing(t, names(first.Clips, root), "source order, none twice")
	again := scan(t, Request{Folder: root, SampleSize: &size, Options: Options{Seed: 7, Workers: 9}})
	assert.Equal(t, first.Profile, again.Profile, "the same draw")
	assert.Equal(t, all(first.Clips), all(again.Clips))
	assert.NotEqual(t, names(first.Clips, ""), names(scan(t, Request{Folder: root, SampleSize: &size, Options: Options{Seed: 8}}).Clips, ""))
	d := first.Profile
	assert.True(t, d.Sampled)
	assert.Equal(t, 4*d.MeasuredCount, d.SampleCount, "scaled by 400 / 100")
	assert.InDelta(t, 300, d.SampleCount, 60)
	assert.InDelta(t, float64(d.SampleCount)/3600, d.TotalHours, 1e-9)
	assert.EqualValues(t, d.SampleCount*32044, d.SizeBytes)
	assert.Len(t, d.BadFiles, 100-d.MeasuredCount)

	size = 400
	assert.False(t, scan(t, Request{Folder: root, SampleSize: &size}).Profile.Sampled, "a sample of all is no sample")
}

func TestProgress(t *testing.T) {
	root := tree(t, map[string][]byte{"a.wav": wavOf(1), "b.wav": nil, "c.wav": wavOf(1)})
	var p Progress
	_, err := Scan(context.Background(), Request{Folder: root}, &p)
	require.NoError(t, err)
	assert.Equal(t, []int64{3, 3, 1}, []int64{p.Total.Load(), p.Done.Load(), p.Bad.Load()})
}

// byFunction measures an entry by a function.
type byFunction func(r *row) (media.Info, error)

func (f byFunction) measure(r *row) (media.Info, error) { return f(r) }

// measuredBy measures these paths by a function with one worker or more.
func measuredBy(ctx context.Context, workers int, rows []row, f byFunction, paths ...string) error {
	var entries []entry
	for _, path := range paths {
		entries = append(entries, entry{path: path, more: &detail{by: f}})
	}
	return measureAll(ctx, entries, rows, workers, new(Progress), func() *reader { return &reader{Clips: new(Clips)} })
}

// measureOne measures one entry outside a scan.
func measureOne(e entry) profile.Clip {
	one, c := []entry{e}, Clips{rows: make([]row, 1)}
	withPieces(one)
	guarded(&one[0], &c.rows[0], &reader{Clips: &c, stop: func(error) {}})
	return c.At(0)
}

func TestPanicIsOneBadFile(t *testing.T) {
	rows := make([]row, 3)
	err := measuredBy(context.Background(), 2, rows, func(r *row) (media.Info, error) {
		if r.path == "b" {
			panic("index out of range")
		}
		return media.Info{DurationS: 1}, nil
	}, "a", "b", "c")
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c"}, names(&Clips{rows: rows}, "/"))
	assert.Contains(t, rows[1].err(), "index out of range")
	assert.Zero(t, rows[1].duration)
	assert.Empty(t, rows[0].err()+rows[2].err())
}

func TestCancel(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	root := tree(t, map[string][]byte{"a.wav": wavOf(1), "list.csv": []byte("path\na.wav\n"), "list.tsv": []byte("path\na.wav\n"), "list.jsonl": []byte(`{"path":"a.wav"}`)})
	for _, r := range []Request{
		{Folder: root}, {Paths: []string{root}}, {Paths: []string{root + "/a.wav"}},
		{Manifest: root + "/list.csv"}, {Manifest: root + "/list.tsv"}, {Manifest: root + "/list.jsonl"},
	} {
		_, err := Scan(ended, r, new(Progress))
		isFault(t, err, fault.Cancelled, "scan stopped while")
		require.ErrorIs(t, err, context.Canceled)
	}
}

// TestCancelLeavesStuckReads: a read that hangs (a dead network mount) does not hold the caller.
func TestCancelLeavesStuckReads(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	release, started := make(chan struct{}), make(chan struct{})
	defer close(release)
	returned := make(chan error)
	go func() {
		returned <- measuredBy(ctx, 1, make([]row, 3), func(*row) (media.Info, error) {
			close(started)
			<-release
			return media.Info{}, nil
		}, "a", "b", "c")
	}()
	<-started
	cancel()
	select {
	case err := <-returned:
		isFault(t, err, fault.Cancelled, "0 of 3 files done")
	case <-time.After(10 * time.Second):
		t.Fatal("did not return")
	}
}
