package runlog

import (
	"fmt"
	"math"
	"reflect"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Check refuses a run log that does not hold together, as its file may have been changed: what reads it takes that for granted.
// Errors: Corrupt.
func (s *Log) Check() error {
	wrong := wrongIn("", reflect.ValueOf(s).Elem(), -1)
	switch {
	case wrong != "":
	case len(s.Memory.GPUUsed) != len(s.GPUs) || len(s.Activity.GPUs) != len(s.GPUs):
		wrong = fmt.Sprintf("its columns are not those of %d GPUs", len(s.GPUs))
	case s.DurationS < 0:
		wrong = fmt.Sprintf("it lasts %g s", s.DurationS)
	default:
		return nil
	}
	return fault.New(fault.Corrupt, "take another copy of the file", "the run log does not hold together: %s", wrong)
}

// wrongIn finds columns of a series that do not have the entries of its times, and numbers whose sums and products would not be
// finite.
func wrongIn(path string, v reflect.Value, entries int) (wrong string) {
	switch v.Kind() {
	case reflect.Struct:
		if times := v.FieldByName("TimesS"); times.IsValid() {
			entries = times.Len()
		}
		for i := 0; i < v.NumField() && wrong == ""; i++ {
			wrong = wrongIn(path+"."+v.Type().Field(i).Tag.Get("json"), v.Field(i), entries)
		}
	case reflect.Slice:
		inner := v.Type().Elem().Kind()
		if column := inner != reflect.Struct && inner != reflect.Slice; column && entries >= 0 && v.Len() != entries {
			return fmt.Sprintf("%s has %d entries, not %d", path[1:], v.Len(), entries)
		}
		for i := 0; i < v.Len() && wrong == ""; i++ {
			if inner == reflect.Float64 && !(math.Abs(v.Index(i).Float()) > most) {
				continue // the most of them
			}
			wrong = wrongIn(fmt.Sprintf("%s[%d]", path, i), v.Index(i), entries)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return wrongIn(path, v.Elem(), entries)
		}
	case reflect.Float64:
		if math.Abs(v.Float()) > most {
			return fmt.Sprintf("%s = %g is not a finite number", path[1:], v.Float())
		}
	}
	return wrong
}
