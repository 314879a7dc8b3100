package runlog

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Save writes a run log as JSON through a temporary file beside path: whoever reads path finds the old run log or the new one,
// whole, even after a power cut. NotFound when it cannot be written.
func Save(path string, s *Log) error {
	if err := replace(path, func(to io.Writer) error { return Write(to, s) }); err != nil {
		return fault.Wrap(err, fault.NotFound, "choose a folder that exists and can be written", "cannot write the run log to %s", fault.Shorten(path))
	}
	return nil
}

// replace writes to what a link leads to, and straight to a device such as /dev/null, which it must not replace.
func replace(path string, write func(io.Writer) error) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if found, err := os.Stat(path); err == nil && !found.Mode().IsRegular() {
		return through(path, found.Mode(), write)
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if err = write(file); err == nil {
		err = file.Chmod(0o644) // as other files of a run; temporary ones are for their owner alone
	}
	if err == nil {
		err = file.Sync()
	}
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	return err
}

// through writes to a character device. Pipes are refused: the training would wait for their reader.
func through(path string, mode os.FileMode, write func(io.Writer) error) error {
	if mode&os.ModeCharDevice == 0 {
		return errors.New("it is not a regular file")
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
