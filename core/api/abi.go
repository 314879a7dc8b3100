package api

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/monitor"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// What crosses the C boundary as it is in memory. The C header, the ctypes structures and the
// reference of the operations are written from these declarations, and from the table of
// operations.
//go:generate go -C ../.. run ./build/generate
//go:generate python3 ../../build/stubs.py

// Constant is a number of the boundary: AC_NAME in C, NAME in Python.
type Constant struct {
	Name    string
	Value   int64
	Comment string
}

// Constants are all but the kinds of steps. Raise ABI_VERSION when a structure or a function of the
// boundary changes.
var Constants = []Constant{
	{"ABI_VERSION", 5, "of this contract; compare it with ac_abi_version() before any other call"},
	{"MAX_GPUS", monitor.MaxGPUs, ""},
	{"MAX_REQUEST", 1 << 30, "bytes"},
	{"OK", 0, "success; any other code means that there is no answer. A failed operation still " +
		"returns an answer"},
	{"BAD_CALL", 1, "a null pointer, a request over AC_MAX_REQUEST, or a struct size that is not " +
		"this version's"},
	{"NO_MONITOR", 2, "ac_stats_read, ac_step_put: no monitor has this handle"},
	{"POISONED", 3, "an earlier panic; restart the process"},
}

// StepKinds are the kinds of steps by their numbers: AC_STEP_TRAIN and so on in C.
var StepKinds = []string{runlog.KindTrain, runlog.KindEvaluation, runlog.KindCheckpoint}

// Step is one optimizer step, evaluation batch or checkpoint at its end. Seconds and bytes; NaN for
// what is not known.
type Step struct {
	Number        uint64
	Kind          int64   // AC_STEP_…
	GPU           int     // whose counters these are, as in ac_stats.gpu; -1: none
	AgoS          float64 // since its end: steps may be told some at a time
	SpentS        float64 // since the step before
	WaitedS       float64 // of that, for the loader
	AudioS        float64 // of the batch, without padding
	PaddedS       float64
	LongestS      float64 // longest clip
	ArithmeticS   float64 // what the model's arithmetic takes at the GPU's published rate
	Allocated     float64 // PyTorch's counters
	Reserved      float64
	PeakAllocated float64 // since the step before
	PeakReserved  float64
}

// KindKnown reports whether the kind is one of StepKinds.
func (s *Step) KindKnown() bool { return s.Kind >= 0 && s.Kind < int64(len(StepKinds)) }

func (s *Step) logged() runlog.Step {
	return runlog.Step{
		Number: s.Number, Kind: StepKinds[s.Kind], GPU: s.GPU, AtS: -s.AgoS,
		SpentS: s.SpentS, WaitedS: s.WaitedS, AudioS: s.AudioS, PaddedS: s.PaddedS,
		LongestS: s.LongestS, ArithmeticS: s.ArithmeticS,
		Allocated: s.Allocated, Reserved: s.Reserved, PeakAllocated: s.PeakAllocated,
		PeakReserved: s.PeakReserved,
	}
}

// Structures are those of the boundary, each after those that it holds. C names them ac_gpu_stats,
// ac_stats and ac_step.
var Structures = []reflect.Type{reflect.TypeFor[monitor.GPUStats](),
	reflect.TypeFor[monitor.Stats](), reflect.TypeFor[Step]()}

// CField is one field of a structure as C and ctypes see it.
type CField struct {
	Name   string  `json:"name"`
	Type   string  `json:"type"`   // in C, of one element
	Count  int     `json:"count"`  // of an array's elements; 0: no array
	Offset uintptr `json:"offset"` // bytes
	Size   uintptr `json:"size"`
}

// CFields are the fields of a structure in this library's memory.
func CFields(structure reflect.Type) []CField {
	fields := make([]CField, structure.NumField())
	for i := range fields {
		f := structure.Field(i)
		element := f.Type
		if element.Kind() == reflect.Array {
			fields[i].Count, element = element.Len(), element.Elem()
		}
		fields[i].Name, fields[i].Type, fields[i].Offset, fields[i].Size =
			snake(f.Name), cType(element), f.Offset, f.Type.Size()
	}
	return fields
}

// CName is the name of a structure in C.
func CName(structure reflect.Type) string { return "ac_" + snake(structure.Name()) }

func cType(t reflect.Type) string {
	if t.Kind() == reflect.Struct {
		return CName(t)
	}
	names := map[reflect.Kind]string{reflect.Uint64: "uint64_t", reflect.Int64: "int64_t",
		reflect.Int: "intptr_t", reflect.Float64: "double", reflect.Bool: "bool"}
	name, ok := names[t.Kind()]
	if !ok {
		panic(fmt.Sprintf("%s cannot cross the C boundary: use a fixed size, float64 or bool", t))
	}
	return name
}

var wordEnds = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

// snake is a Go name as C and Python spell it: GPUCount is gpu_count.
func snake(name string) string {
	return strings.ToLower(wordEnds.ReplaceAllString(name, "${1}${3}_${2}${4}"))
}

// Operation is a row of the table, as the reference of the operations shows it.
type Operation struct {
	Name     string
	Function string       // whose comment says what it does: its package's path and its name
	Args     reflect.Type // a struct
	Result   reflect.Type
	Attaches bool // the answer has bytes after its JSON
}

// Operations are all, by name.
func Operations() []Operation {
	var operations []Operation
	for _, name := range slices.Sorted(maps.Keys(table)) {
		operations = append(operations, describe(name, reflect.ValueOf(table[name].function)))
	}
	return operations
}

func describe(name string, function reflect.Value) Operation {
	f := function.Type()
	o := Operation{Name: name, Function: runtime.FuncForPC(function.Pointer()).Name(),
		Args: reflect.TypeFor[struct{}](), Result: f.Out(0)}
	if f.NumIn() > 0 {
		o.Args = f.In(f.NumIn() - 1)
	}
	if o.Attaches = o.Result.Implements(reflect.TypeFor[attached]()); o.Attaches {
		o.Result = o.Result.Field(0).Type
	}
	return o
}
