package dataset

import (
	"archive/tar"
	"context"
	"fmt"
	"os"
	"path/filepath"
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
			_, err := Scan(context.Background(), r, nil)
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
			found, err := Scan(context.Background(), r, nil)
			require.NoError(t, err)
			assert.Zero(t, found.Profile.BadCount)
			assert.NotZero(t, found.Profile.MeasuredCount)
		})
	}
}

func TestFoldersOfStorageThatDoesNotAnswer(t *testing.T) {
	lost := []entry{stray("/drive/clips", "folder cannot be read: %v", fmt.Errorf("read: %w", syscall.EIO))}
	assert.ErrorIs(t, unlisted(lost), syscall.EIO)
	assert.NoError(t, unlisted([]entry{stray("/drive/clips", "folder cannot be read: %v", os.ErrPermission), {path: "a.wav"}}))
}

func TestPiecesOfStorageThatDoesNotAnswer(t *testing.T) {
	unreachable(t, "gone", 1<<40)
	c := NewCollection(Options{})
	err := c.Add(context.Background(), &Piece{Paths: []string{"gone.wav"}, PathRows: []int{0}}, nil)
	assert.True(t, fault.Is(err, fault.Storage), "%v", err)
}
