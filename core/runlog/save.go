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

// Save writes a run log as JSON through a temporary file beside path: a reader of path finds the
// old run log or the new one in full, even after a power cut. The error is NotFound when it cannot
// be written.
func Save(path string, s *Log) error {
	if err := replace(path, func(to io.Writer) error { return Write(to, s) }); err != nil {
		return fault.Wrap(err, fault.NotFound, "choose a folder that exists and can be written",
			"cannot write the run log to %s", fault.Shorten(path))
	}
	return nil
}

// replace calls write with a temporary file and renames that to path, to the target where path is a
// link. A device such as /dev/null is not replaced, but written to.
func replace(path string, write func(io.Writer) error) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeDevice(path, info.Mode(), write)
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
		err = file.Chmod(0o644) // as other files of a run; CreateTemp makes it 0600
	}
	if err == nil {
		err = file.Sync()
	}
	if errClose := file.Close(); err == nil {
		err = errClose
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	return err
}

// writeDevice writes to a character device. It refuses pipes: the training would wait for their
// reader.
func writeDevice(path string, mode os.FileMode, write func(io.Writer) error) error {
	if mode&os.ModeCharDevice == 0 {
		return errors.New("it is not a regular file")
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// Write writes a run log as the JSON of json.Marshal, but column by column: json.Marshal would take
// several times the memory of a long run log each time that it is saved.
func Write(to io.Writer, s *Log) error {
	w := &writer{to: bufio.NewWriterSize(to, 1<<16)}
	w.value(reflect.ValueOf(s).Elem())
	if w.err != nil {
		return w.err
	}
	return w.to.Flush()
}

// writer writes JSON until the first error, which it keeps.
type writer struct {
	to     *bufio.Writer
	column []byte // the JSON of one column, to use its memory again
	err    error
}

func (w *writer) text(text string) {
	if w.err == nil {
		_, w.err = w.to.WriteString(text)
	}
}

// value writes structs and slices member by member, down to the columns.
func (w *writer) value(v reflect.Value) {
	switch column, isColumn := v.Interface().(Column); {
	case isColumn:
		w.column = column.append(w.column[:0])
		if w.err == nil {
			_, w.err = w.to.Write(w.column)
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

// fields writes a struct whose fields all have a json tag that is a name alone.
func (w *writer) fields(v reflect.Value) {
	for i := range v.NumField() {
		w.text(string("{,"[min(i, 1)]) + `"` + v.Type().Field(i).Tag.Get("json") + `":`)
		w.value(v.Field(i))
	}
	w.text("}")
}
