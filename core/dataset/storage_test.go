package dataset

import (
	"archive/tar"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

func init() { media.StoragePauses = make([]time.Duration, 2) }

// unreachable lets opening files whose path holds text fail so often.
func unreachable(t *testing.T, text string, often int64) {
	t.Helper()
	var left atomic.Int64
	left.Store(often)
	fails := func(path string) error {
		if strings.Contains(path, text) && left.Add(-1) >= 0 {
			return syscall.ENOTCONN
		}
		return nil
	}
	media.Simulated.Store(&fails)
	t.Cleanup(func() { media.Simulated.Store(nil) })
}

// sources are ways to name the same clip of a folder.
func sources(t *testing.T) map[string]Request {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string][]byte{
		"a.wav": wavOf(16000), "gone.wav": wavOf(16000), "list.jsonl": []byte(`{"audio_filepath":"gone.wav","offset":0.1,"duration":0.2}`),
		"gone.tar": tarOf(t, tar.FormatUSTAR, "1.wav", wavOf(16000)),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	at := func(name string) string { return filepath.Join(folder, name) }
	return map[string]Request{
		"folder":   {Folder: folder},
		"paths":    {Paths: []string{at("a.wav"), at("gone.wav")}},
		"piece":    {Paths: []string{at("gone.wav") + "#t=0.1,0.5"}},
		"manifest": {Manifest: at("list.jsonl")},
		"shard":    {Shards: []string{at("gone.tar")}},
		"cached":   {Folder: folder, Options: Options{Cache: Cache{Folder: t.TempDir()}}},
	}
}

func TestClipsOfStorageThatDoesNotAnswerAreNotBad(t *testing.T) {
	for name, r := range sources(t) {
		t.Run(name, func(t *testing.T) {
			r.AllowEmpty = true
			unreachable(t, "gone", 1<<40)
			_, err := Scan(context.Background(), r, new(Progress))
			require.True(t, fault.Is(err, fault.Storage), "%v", err)
			assert.ErrorContains(t, err, "the storage under ")
			assert.ErrorContains(t, err, " does not answer after 3 attempts: ")
			assert.ErrorContains(t, err, syscall.ENOTCONN.Error())
			assert.ErrorContains(t, err, "gone")
		})
	}
}

func TestStorageThatAnswersAgainLosesNothing(t *testing.T) {
	for name, r := range sources(t) {
		t.Run(name, func(t *testing.T) {
			unreachable(t, "gone", 2)
			found, err := Scan(context.Background(), r, new(Progress))
			require.NoError(t, err)
			assert.Zero(t, found.Profile.BadCount)
			assert.NotZero(t, found.Profile.MeasuredCount)
		})
	}
}

func TestFoldersOfStorageThatDoesNotAnswer(t *testing.T) {
	w := new(walker)
	require.ErrorIs(t, w.unread("/drive", "%v", &fs.PathError{Op: "read", Err: syscall.EIO}), syscall.EIO)
	require.NoError(t, w.unread("/drive", "%v", os.ErrPermission))
	assert.Len(t, w.entries, 1)
}

func TestPiecesOfStorageThatDoesNotAnswer(t *testing.T) {
	unreachable(t, "gone", 1<<40)
	c := NewCollection(Options{})
	err := c.Add(context.Background(), &Piece{Rows: []PieceRow{bufferRow("gone.wav", nil)}}, new(Progress))
	assert.True(t, fault.Is(err, fault.Storage), "%v", err)
}

// noisy is a WAV file that is no silence.
func noisy(samples int, seed byte) []byte {
	b := wavOf(samples)
	for i := 44; i < len(b); i++ {
		b[i] = byte(i*i>>3) ^ seed
	}
	return b
}

func TestDuplicates(t *testing.T) {
	other := noisy(9000, 1)
	other[900]++ // within what is read of any WAV file
	root := tree(t, map[string][]byte{
		"a.wav": noisy(9000, 1), "b.wav": noisy(9000, 2), "c.wav": noisy(9000, 1), "d/a.wav": noisy(9000, 1), "e.wav": noisy(8000, 1), "f.wav": other,
		"silent1.wav": wavOf(9000), "silent2.wav": wavOf(9000), "tiny1.wav": wavOf(90), "tiny2.wav": wavOf(90),
	})
	d := scan(t, Request{Folder: root}).Profile
	at := func(name string) string { return filepath.Join(root, name) }
	assert.Equal(t, [][]string{{at("a.wav"), at("c.wav"), at("d/a.wav")}, {at("tiny1.wav"), at("tiny2.wav")}}, d.Duplicates.Groups,
		"long files that begin with silence are not judged by it")
	assert.Equal(t, 3, d.Duplicates.Count)
	assert.InDelta(t, (2*9000+90)/16000.0/3600, d.Duplicates.Hours, 1e-9)
	assert.Contains(t, d.Warnings, "3 clips very likely copied (1.13 s): the size, the length and the bytes that were read are those of another")

	listed := scan(t, Request{Paths: []string{at("b.wav"), at("b.wav")}}).Profile
	assert.Equal(t, 1, listed.Duplicates.Count, "listed twice")
	result, err := added(t, Ending{}, bufferRow("x", noisy(9000, 1)), bufferRow("y", other), bufferRow("z", noisy(9000, 1)))
	require.NoError(t, err)
	buffers := result.Profile
	assert.Equal(t, [][]string{{"x", "z"}}, buffers.Duplicates.Groups)
	assert.Zero(t, summed(clipsOf(1, 1, 1), "", nil).Duplicates.Count, "of arrays nothing was read")
}

func TestManyDuplicatesAreShownInPart(t *testing.T) {
	rows := make([]row, 300)
	for i := range rows {
		rows[i] = row{path: "x", duration: 1, size: int64(i % 30), digest: 7}
	}
	d := duplicates(rows)
	assert.Equal(t, 270, d.Count)
	require.Len(t, d.Groups, shownGroups)
	assert.Len(t, d.Groups[0], shownMembers)
}

func TestWarnings(t *testing.T) {
	clips := clipsOf(0.05, 0.1, 5, 30, 31, 90)
	claimed := 9.0
	for i := range clips {
		clips[i].SampleRate, clips[i].Channels, clips[i].Method = 16000, 1, "header"
	}
	clips[0].SampleRate, clips[1].SampleRate, clips[2].SampleRate = 8000, 44100, 8000
	clips[3].Channels, clips[2].ClaimedS, clips[4].Method = 2, &claimed, "estimated"
	d := summed(clips, "", nil)
	assert.Equal(t, []string{
		"1 clip under 0.1 s, too short for speech; CTC needs a frame (20 ms) for each label",
		"2 clips over 30 s, which Whisper truncates; other models need more memory for them",
		"3 clips not at 16 kHz, to be resampled (8000 Hz ×2, 44100 Hz ×1)",
		"1 clip not mono, to be mixed down",
		"1 clip with less audio than the header claims; the actual length is counted",
		"1 clip of estimated length: their formats do not store it",
	}, d.Warnings)
	assert.Equal(t, map[string]int{"header": 5, "estimated": 1}, d.Methods)
	quiet := clipsOf(3)
	quiet[0].SampleRate, quiet[0].Channels = 16000, 1
	assert.Equal(t, []string{}, summed(quiet, "", nil).Warnings)
	assert.Equal(t, "a ×9, b ×2, c ×2, d ×1 and 1 more", mix(map[string]int{"a": 9, "c": 2, "b": 2, "e": 1, "d": 1}, ""))
}

// TestDigestOfWhatIsRead: two files with the same long tag in front differ behind it.
func TestDigestOfWhatIsRead(t *testing.T) {
	tag := append([]byte("ID3\x04\x00\x00\x00\x01\x00\x00"), make([]byte, 16384)...)
	flac, err := os.ReadFile("../audio/flac/testdata/tone.flac")
	require.NoError(t, err)
	changed := append([]byte(nil), flac...)
	changed[30] ^= 1 // in the MD5 of the samples
	root := tree(t, map[string][]byte{"a.flac": slices.Concat(tag, flac), "b.flac": slices.Concat(tag, changed), "c.flac": slices.Concat(tag, flac)})
	clips := scan(t, Request{Folder: root}).Clips
	require.Equal(t, 3, clips.Len())
	require.Equal(t, [][]string{{clips.At(0).Path, clips.At(2).Path}}, scan(t, Request{Folder: root}).Profile.Duplicates.Groups)
}
