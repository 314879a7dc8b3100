package runlog

import (
	"bufio"
	"io"
	"reflect"
	"strings"

	"github.com/goccy/go-json"
)

// Write writes a run log as the JSON that json.Marshal gives, one column after the other: a long run log as one text would take
// several times its memory for a moment, each time that a run's file is written.
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
