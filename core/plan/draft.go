package plan

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// draft is a Config in the making. Reasons are kept apart from values, so that the value shown is
// always the one set.
type draft struct {
	profile.Config
	reasons []profile.Decision // without values
}

// newDraft is a plan for some devices of which nothing else is decided.
func newDraft(in Inputs, p pool) *draft {
	return &draft{Config: profile.Config{SchemaVersion: profile.SchemaVersion,
		RowKind: cmp.Or(in.Dataset.RowKind, units.Clips), Policy: in.Options.Policy,
		Preset: in.Options.Preset, Decisions: []profile.Decision{},
		Warnings: append([]string{}, p.warnings...)}}
}

func (d *draft) because(setting, text string) {
	d.reasons = append(d.reasons, profile.Decision{Setting: setting, Reason: text})
}

// warn adds a warning unless text is empty.
func (d *draft) warn(text string) {
	if text != "" {
		d.Warnings = append(d.Warnings, text)
	}
}

// finish writes the decisions, each value read back from its field by JSON name.
func (d *draft) finish() (profile.Config, error) {
	fields := fieldsByJSONName(&d.Config)
	for _, r := range d.reasons {
		field, ok := fields[r.Setting]
		if !ok {
			return profile.Config{}, fault.New(fault.Internal, "please report this as a defect",
				"no setting is called %q", r.Setting)
		}
		r.Value = show(r.Setting, field)
		d.Decisions = append(d.Decisions, r)
	}
	return d.Config, nil
}

func fieldsByJSONName(c *profile.Config) map[string]reflect.Value {
	v := reflect.ValueOf(c).Elem()
	fields := make(map[string]reflect.Value, v.NumField())
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = v.Field(i)
	}
	return fields
}

// show writes a value for people: bytes in GiB, an absent value as "none".
func show(setting string, v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "none"
		}
		v = v.Elem()
	}
	if strings.HasSuffix(setting, "_bytes") {
		return units.Size(v.Convert(reflect.TypeFor[float64]()).Float())
	}
	if v.Kind() == reflect.Float64 {
		return number(v.Float())
	}
	return fmt.Sprint(v.Interface())
}

// number writes a float without needless digits: 4e-05, 0.85, 3.
func number(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }

// comparedWith holds the last decision against what else it might be.
func (d *draft) comparedWith(alternative, gain string) {
	last := &d.reasons[len(d.reasons)-1]
	last.Alternative, last.Gain = alternative, gain
}
