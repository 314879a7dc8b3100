package runlog

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Save writes a run log as JSON through a temporary file beside path: whoever reads path finds the
// old run log or the new one, whole, even after a power cut. NotFound when it cannot be written.
func Save(path string, s *Log) error {
	if err := replace(path, func(to io.Writer) error { return Write(to, s) }); err != nil {
		return fault.Wrap(err, fault.NotFound, "choose a folder that exists and can be written",
			"cannot write the run log to %s", fault.Shorten(path))
	}
	return nil
}

// replace writes to what a link leads to, and straight to a device such as /dev/null, which it must
// not replace.
func replace(path string, write func(io.Writer) error) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return through(path, info.Mode(), write)
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

// through writes to a character device. Pipes are refused: the training would wait for their
// reader.
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

// Write writes a run log as the JSON that json.Marshal gives, one column after the other: a long
// run log as one text would take several times its memory for a moment, each time that a run's file
// is written.
func Write(to io.Writer, s *Log) error {
	w := &writer{to: bufio.NewWriterSize(to, 1<<16)}
	w.value(reflect.ValueOf(s).Elem())
	if w.err != nil {
		return w.err
	}
	return w.to.Flush()
}

type writer struct {
	to    *bufio.Writer
	spare []byte // of the column before
	err   error
}

func (w *writer) text(text string) {
	if w.err == nil {
		_, w.err = w.to.WriteString(text)
	}
}

func (w *writer) value(v reflect.Value) {
	switch column, is := v.Interface().(Column); {
	case is:
		w.spare = column.append(w.spare[:0])
		if w.err == nil {
			_, w.err = w.to.Write(w.spare)
		}
	case v.Kind() == reflect.Struct:
		w.fields(v)
	case v.Kind() == reflect.Slice && !v.IsNil():
		w.text("[")
		for i := range v.Len() {
			w.text(strings.Repeat(",", min(i, 1)))
			w.value(v.Index(i))
		}
		w.text("]")
	default:
		text, err := json.Marshal(v.Interface())
		if err != nil && w.err == nil {
			w.err = err
		}
		w.text(string(text))
	}
}

func (w *writer) fields(v reflect.Value) {
	for i := range v.NumField() {
		w.text(string("{,"[min(i, 1)]) + `"` + v.Type().Field(i).Tag.Get("json") + `":`)
		w.value(v.Field(i))
	}
	w.text("}")
}
