package media

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// asleep notes pauses instead of taking them.
func asleep(t *testing.T) *[]time.Duration {
	var slept []time.Duration
	sleep = func(d time.Duration) { slept = append(slept, d) }
	t.Cleanup(func() { sleep = time.Sleep })
	return &slept
}

func TestStorageThatComesBackIsReadOn(t *testing.T) {
	slept, attempts := asleep(t), 0
	require.NoError(t, Answered("a.wav", func() error {
		if attempts++; attempts < 3 {
			return fault.Wrap(syscall.ENOTCONN, fault.NotFound, "", "a.wav")
		}
		return nil
	}))
	assert.Equal(t, StoragePauses[:2], *slept)
}

func TestStorageThatDoesNotAnswerIsNamed(t *testing.T) {
	for _, number := range append([]syscall.Errno{remoteIO}, unanswered...) {
		slept := asleep(t)
		read := func() error {
			return fmt.Errorf("the header: %w", &fs.PathError{Op: "read", Path: "/proc/self/a.wav", Err: number})
		}
		if number == remoteIO && !Unanswered(number) {
			continue // another system than Linux
		}
		err := Answered("elsewhere", func() error { return Answered("elsewhere", read) })
		require.True(t, fault.Is(err, fault.Storage), number)
		assert.Equal(t, StoragePauses, *slept, "nested reads try no more often")
		assert.ErrorContains(t, err, "does not answer after 5 attempts: /proc/self/a.wav: "+number.Error())
		assert.True(t, errors.Is(err, number))
		assert.Contains(t, fault.From(err).Hint, "local disk")
	}
}

func TestOtherErrorsAreNotTriedAgain(t *testing.T) {
	slept := asleep(t)
	for _, err := range []error{nil, os.ErrNotExist, syscall.EACCES, syscall.ENOSPC, errors.New("input/output error")} {
		assert.Equal(t, err, Answered("a.wav", func() error { return err }))
	}
	assert.Empty(t, *slept)
}

func TestWhereAFileIsMounted(t *testing.T) {
	folder := t.TempDir()
	if _, err := os.Stat("/proc/self/mounts"); err != nil {
		assert.Equal(t, folder, mountOf(filepath.Join(folder, "a.wav")))
		return
	}
	assert.Equal(t, "/proc", mountOf("/proc/self/a.wav"))
	assert.NotEmpty(t, mountOf("a.wav"))
	assert.Equal(t, "/a drive/of \\", escapes.Replace(`/a\040drive/of\040\134`))
}

func TestLastIndex(t *testing.T) {
	b := make([]byte, 5000)
	for _, pos := range []int{0, 1021, 1022, 1024, 2047, 4996, 3} {
		clear(b)
		assert.Equal(t, -1, LastIndex(b, "OggS"))
		copy(b, "OggS")
		copy(b[pos:], "OggS")
		assert.Equal(t, bytes.LastIndex(b, []byte("OggS")), LastIndex(b, "OggS"), pos)
		assert.Equal(t, bytes.LastIndex(b[:pos+3], []byte("OggS")), LastIndex(b[:pos+3], "OggS"), pos)
	}
}
