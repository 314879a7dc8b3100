package api

import (
	"errors"
	"maps"
	"runtime"
	"slices"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/compare"
	"github.com/asrconfig/asrconfig-go/core/dataset"
	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/hardware"
	"github.com/asrconfig/asrconfig-go/core/jsontext"
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/device"
	"github.com/asrconfig/asrconfig-go/core/memory/sharding"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/recovery"
	"github.com/asrconfig/asrconfig-go/core/report"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
	"github.com/asrconfig/asrconfig-go/core/view"
)

// operation runs a request. The reference shows the types and the comment of its function (abi.go).
type operation struct {
	run      func(args json.RawMessage, attached []byte) (any, error)
	function any
}

// table is every operation. To add one: a function, a row here, a golden pair in capi/testdata, a
// Python method.
var table = map[string]operation{
	"diagnosis.blocks":   withArgs(diagnoseBlocks),
	"diagnosis.cause":    withArgs(diagnosis.BottleneckOf),
	"hardware.detect":    withArgs(detectHardware),
	"hardware.catalogue": withoutArgs(gpus.All),
	"model.profile":      withArgs(model.Profile),
	"model.names":        withoutArgs(model.Names),
	"model.config":       withArgs(modelConfig),
	"scan.start":         withArgs(startScan),
	"scan.open":          withArgs(openScan),
	"scan.add":           on(addToScan),
	"scan.end":           on(endScan),
	"scan.poll":          on(pollScan),
	"scan.result":        on(scanResult),
	"scan.clips":         on(scanClips),
	"scan.texts":         on(scanTexts),
	"scan.rows":          on(scanRows),
	"scan.cancel":        on(cancelScan),
	"plan.make":          withArgs(makePlan),
	"plan.next":          withArgs(nextTrace),
	"plan.check":         withArgs(plan.Options.Normalized),
	"plan.explain":       withArgs(plan.Explain),
	"batching.compare":   withArgs(compareBatching),
	"batching.order":     withArgs(orderSteps),
	"batching.split":     withArgs(splitStep),
	"batching.longest":   withArgs(costOfLongest),
	"recovery.classify":  withArgs(classifyError),
	"recovery.next":      withArgs(recovery.Next),
	"recovery.trial":     withArgs(recovery.ChooseTrial),
	"memory.open":        withArgs(openTrace),
	"memory.close":       on(closeTrace),
	"memory.simulate":    on(simulate),
	"memory.determined":  on(determines),
	"memory.largest":     on(largest),
	"memory.snapshot":    on(snapshotOf),
	"memory.compare":     withArgs(compareHeld),
	"memory.run":         on(runTraining),
	"memory.work":        on(workOf),
	"memory.device":      withArgs(device.Describe),
	"memory.sharding":    withArgs(sharding.Of),
	"memory.replay":      withArgs(allocator.Replay),
	"timing.step":        withArgs(compare.Step),
	"timing.run":         withArgs(compare.Run),
	"timing.calibrate":   withArgs(compare.Calibrate),
	"timing.compare":     withArgs(compareGPUs),
	"timing.prices":      withoutArgs(gpuPrices),
	"timing.scenarios":   withoutArgs(compare.Scenarios),
	"timing.kernels":     withArgs(kernelSuite),
	"timing.profile":     withArgs(profileKernels),
	"monitor.start":      withArgs(startMonitor),
	"monitor.stop":       on(stopMonitor),
	"monitor.close":      on(closeMonitor),
	"monitor.history":    on(monitorHistory),
	"monitor.run_log":    on(monitorRunLog),
	"monitor.save":       on(saveMonitor),
	"monitor.alerts":     on(monitorAlerts),
	"monitor.check":      on(checkMonitor),
	"monitor.event":      on(recordEvent),
	"monitor.activity":   on(monitorActivity),
	"report.compare":     withArgs(report.Compare),
	"report.export":      withArgs(exportRun),
	"report.run":         withArgs(report.Make),
	"runlog.check":       withArgs(checkRunLog),
	"view.render":        withArgs(view.Render),
}

// library.info lists the table, which may not name it in its own initializer.
func init() { table["library.info"] = withoutArgs(libraryInfo) }

// attachable are arguments that come with bytes after the JSON. The bytes belong to the caller:
// copy what is kept.
type attachable interface{ attach(b []byte) error }

// withArgs decodes the arguments strictly into A and runs f.
func withArgs[A, R any](f func(A) (R, error)) operation {
	run := func(raw json.RawMessage, attached []byte) (any, error) {
		var args A
		if err := jsontext.Decode(raw, &args); err != nil {
			var unfit *json.UnmarshalTypeError
			if errors.As(err, &unfit) && unfit.Field != "" {
				return nil, fault.New(fault.InvalidArgument,
					"pass a value of that type, of at most 64 bits",
					"%s: %s does not fit the type %s", unfit.Field, unfit.Value, unfit.Type)
			}
			return nil, fault.Wrap(err, fault.InvalidArgument,
				"see the operation's arguments in capi/operations.json",
				"reading the arguments")
		}
		if err := attach(&args, attached); err != nil {
			return nil, err
		}
		return f(args)
	}
	return operation{run, f}
}

// on is an operation on an object that its arguments name by a handle.
func on[T any, A interface{ found() (T, error) }, R any](f func(T, A) (R, error)) operation {
	run := withArgs(func(a A) (result R, err error) {
		named, err := a.found()
		if err != nil {
			return result, err
		}
		return f(named, a)
	}).run
	return operation{run, f}
}

func withoutArgs[R any](f func() R) operation {
	return operation{withArgs(func(struct{}) (R, error) { return f(), nil }).run, f}
}

func attach(args any, b []byte) error {
	if a, is := args.(attachable); is {
		return a.attach(b)
	}
	if len(b) > 0 {
		return fault.New(fault.InvalidArgument, "end the request after its JSON",
			"the operation takes no attachment, got %d bytes", len(b))
	}
	return nil
}

type library struct {
	Version         string   `json:"version"`
	Go              string   `json:"go"`
	Platform        string   `json:"platform"` // as in linux/amd64
	Goroutines      int      `json:"goroutines"`
	SchemaVersion   int      `json:"schema_version"` // of plans and profiles in files
	Operations      []string `json:"operations"`
	AudioExtensions []string `json:"audio_extensions"`
	// usual names of columns with audio, the preferred ones first
	AudioColumns []string          `json:"audio_columns"`
	TextColumns  []string          `json:"text_columns"` // the same of transcripts
	Throttles    []runlog.Throttle `json:"throttles"`    // bits of a GPU's throttle reasons
	// of capi/layout.h, as laid out in this library
	Structures map[string][]CField `json:"structures"`
}

// libraryInfo describes this library and what it can do.
func libraryInfo() library {
	paths, texts := dataset.Columns()
	return library{
		Version: Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Goroutines:    runtime.NumGoroutine(),
		SchemaVersion: profile.SchemaVersion, Operations: slices.Sorted(maps.Keys(table)),
		AudioExtensions: audio.Extensions(),
		AudioColumns:    paths, TextColumns: texts,
		Throttles: runlog.Throttles, Structures: structures(),
	}
}

type hardwareArgs struct {
	// plan for this card of the catalogue instead of the local one
	GPU string `json:"gpu"`
	hardware.Options
}

// detectHardware measures this machine, or takes GPUs of the catalogue instead of its own.
func detectHardware(a hardwareArgs) (profile.Hardware, error) {
	if a.GPU != "" {
		return hardware.Planned(a.GPU, a.Options)
	}
	return hardware.Detect(a.Options)
}

// planArgs come with the duration of every clip attached, where they are known.
type planArgs struct {
	plan.Inputs
	durations
}

func (a planArgs) inputs() plan.Inputs {
	a.Durations, a.Cards = a.Seconds, compare.Cards()
	return a.Inputs
}

// makePlan plans a training: every setting with its reason. Errors: InvalidArgument, EmptyDataset,
// Infeasible.
func makePlan(a planArgs) (profile.Config, error) { return plan.Make(a.inputs()) }

// nextTrace names the candidate to trace before plan.make; null when a plan needs no further trace.
func nextTrace(a planArgs) (*plan.TraceRequest, error) { return plan.Next(a.inputs()) }

func structures() map[string][]CField {
	layouts := map[string][]CField{}
	for _, s := range Structures {
		layouts[CName(s)] = CFields(s)
	}
	return layouts
}

// compareArgs come with the duration of every clip attached, where they are known.
type compareArgs struct {
	compare.Request
	durations
}

// compareGPUs plans a training on several GPUs: each row is the plan of plan.make for that machine.
// Instead it may return what to trace first. Errors: those of plan.make but Infeasible, and
// NotFound for an unknown GPU.
func compareGPUs(a compareArgs) (compare.Answer, error) {
	a.Durations = a.Seconds
	return compare.Make(a.Request)
}

// gpuPrices lists what an hour of each GPU costs, with source and date.
func gpuPrices() []timing.Price { return timing.Prices() }

type kernelSuiteResult struct {
	Samples []kernel.Sample `json:"samples"`
}

// kernelSuite lists the kernels that are worth measuring on a card. Errors: InvalidArgument without
// memory.
func kernelSuite(r kernel.SuiteRequest) (kernelSuiteResult, error) {
	samples, err := kernel.Suite(r)
	return kernelSuiteResult{samples}, err
}

type kernelTable struct {
	Table string `json:"table"` // the text of the file
}

// profileKernels reads a table of kernels that were measured on a card, and returns by how much
// they correct the times of plans for it. Errors: Corrupt, InvalidArgument for a table that
// contradicts itself or its card, NotFound and Unsupported for a card without figures.
func profileKernels(a kernelTable) (kernel.Profile, error) {
	table, err := kernel.ReadTable([]byte(a.Table))
	if err != nil {
		return kernel.Profile{}, err
	}
	return table.Profile()
}

type errorArgs struct {
	Type string `json:"type"` // the exception's class name
	Text string `json:"text"`
}

type classified struct {
	Class  recovery.Class `json:"class"`
	Advice string         `json:"advice"`
}

// classifyError returns what a failure means, by the exception's class name and text, and what to
// do.
func classifyError(a errorArgs) (classified, error) {
	class, advice := recovery.Classify(a.Type, a.Text)
	return classified{class, advice}, nil
}

type nameArgs struct {
	Name string `json:"name"` // known name, forgiving in case, signs and prefix: see model.names
}

// modelConfig returns the transformers config of a known model. Errors: NotFound.
func modelConfig(a nameArgs) (model.Published, error) { return model.Config(a.Name) }
