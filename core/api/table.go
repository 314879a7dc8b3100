package api

import (
	"runtime"
	"sort"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/dataset"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/hardware"
	"github.com/asrconfig/asrconfig-go/core/jsontext"
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/memory/device"
	"github.com/asrconfig/asrconfig-go/core/memory/sharding"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/recovery"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/compare"
	"github.com/asrconfig/asrconfig-go/core/view"
)

type operation func(args json.RawMessage, attached []byte) (any, error)

// table is every operation. To add one: a function, a row here, a golden pair in capi/testdata, a Python method.
var table = map[string]operation{
	"diagnosis.of":        withArgs(diagnose),
	"hardware.detect":     withArgs(detectHardware),
	"hardware.catalogue":  withArgs(func(struct{}) (any, error) { return gpus.All(), nil }),
	"model.profile":       withArgs(func(r model.Request) (any, error) { return model.Profile(r) }),
	"model.names":         withArgs(func(struct{}) (any, error) { return model.Names(), nil }),
	"model.config":        withArgs(modelConfig),
	"scan.start":          withArgs(startScan),
	"scan.open":           withArgs(openScan),
	"scan.add":            withArgs(addToScan),
	"scan.end":            withArgs(endScan),
	"scan.poll":           withArgs(pollScan),
	"scan.result":         withArgs(scanResult),
	"scan.clips":          withArgs(scanClips),
	"scan.texts":          withArgs(scanTexts),
	"scan.cancel":         withArgs(cancelScan),
	"plan.make":           withArgs(makePlan),
	"plan.next":           withArgs(nextTrace),
	"plan.check":          withArgs(func(o plan.Options) (any, error) { return o.Normalized() }),
	"batching.compare":    withArgs(compareBatching),
	"batching.order":      withArgs(orderSteps),
	"batching.split":      withArgs(splitStep),
	"batching.longest":    withArgs(costOfLongest),
	"recovery.classify":   withArgs(classifyError),
	"recovery.next":       withArgs(func(s recovery.State) (any, error) { return recovery.Next(s) }),
	"memory.open":         withArgs(openTrace),
	"memory.close":        withArgs(closeTrace),
	"memory.simulate":     withArgs(simulate),
	"memory.run":          withArgs(runTraining),
	"memory.analytic":     withArgs(func(r analytic.Request) (any, error) { return analytic.Make(r) }),
	"memory.device":       withArgs(func(r device.Request) (any, error) { return device.Describe(r) }),
	"memory.sharding":     withArgs(func(r sharding.Request) (any, error) { return sharding.Of(r) }),
	"memory.replay":       withArgs(func(s allocator.Sequence) (any, error) { return allocator.Replay(s) }),
	"timing.step":         withArgs(func(r compare.StepRequest) (any, error) { return compare.Step(r) }),
	"timing.calibrate":    withArgs(func(r compare.CalibrateRequest) (any, error) { return compare.Calibrate(r) }),
	"timing.compare":      withArgs(func(r compare.Request) (any, error) { return compare.Make(r) }),
	"timing.largest":      withArgs(func(r compare.LargestRequest) (any, error) { return compare.LargestModels(r) }),
	"timing.prices":       withArgs(func(struct{}) (any, error) { return timing.Prices(), nil }),
	"monitor.start":       withArgs(startMonitor),
	"monitor.stop":        withMonitor(stopMonitor),
	"monitor.close":       withMonitor(closeMonitor),
	"monitor.history":     withMonitor(monitorHistory),
	"monitor.reset_peaks": withMonitor(resetMonitorPeaks),
	"monitor.run_log":     withMonitor(monitorRunLog),
	"monitor.save":        withMonitor(saveMonitor),
	"monitor.alerts":      withMonitor(monitorAlerts),
	"monitor.event":       withMonitor(recordEvent),
	"monitor.activity":    withMonitor(monitorActivity),
	"view.render":         withArgs(view.Render),
}

// library.info lists the table, which may not name it in its own initializer.
func init() { table["library.info"] = withArgs(libraryInfo) }

// attachable are arguments that come with bytes behind the JSON. They are the caller's: what is kept must be copied.
type attachable interface{ attach(b []byte) error }

// withArgs decodes the arguments strictly into A and runs f.
func withArgs[A any](f func(A) (any, error)) operation {
	return func(raw json.RawMessage, attached []byte) (any, error) {
		var args A
		if err := jsontext.Decode(raw, &args); err != nil {
			return nil, fault.Wrap(err, fault.InvalidArgument, "see the operation's arguments in docs/architecture.md", "reading the arguments")
		}
		if err := attach(&args, attached); err != nil {
			return nil, err
		}
		return f(args)
	}
}

func attach(args any, b []byte) error {
	if a, is := args.(attachable); is {
		return a.attach(b)
	}
	if len(b) > 0 {
		return fault.New(fault.InvalidArgument, "end the request behind its JSON", "the operation takes no attachment, %d bytes came", len(b))
	}
	return nil
}

func libraryInfo(struct{}) (any, error) {
	names := make([]string, 0, len(table))
	for name := range table {
		names = append(names, name)
	}
	sort.Strings(names)
	return map[string]any{
		"version": Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		"goroutines": runtime.NumGoroutine(), "schema_version": profile.SchemaVersion, "operations": names, "audio_extensions": dataset.Extensions(),
	}, nil
}

type hardwareArgs struct {
	GPU            string  `json:"gpu"`             // plan for this card of the catalogue instead of what is here
	VisibleDevices *string `json:"visible_devices"` // CUDA_VISIBLE_DEVICES; Go's own copy of the environment is stale
	LibraryPath    string  `json:"library_path"`
	Root           string  `json:"root"`
}

func (a hardwareArgs) options() hardware.Options {
	return hardware.Options{VisibleDevices: a.VisibleDevices, LibraryPath: a.LibraryPath, Root: a.Root}
}

func detectHardware(a hardwareArgs) (any, error) {
	if a.GPU != "" {
		return hardware.Planned(a.GPU, a.options())
	}
	return hardware.Detect(a.options())
}

// planArgs come with the duration of every clip attached, where they are known.
type planArgs struct {
	Hardware  profile.Hardware `json:"hardware"`
	Dataset   profile.Dataset  `json:"dataset"`
	Model     profile.Model    `json:"model"`
	Options   plan.Options     `json:"options"`
	Described *model.Request   `json:"described"`
	Traced    []plan.Traced    `json:"traced"`
	NotTraced *plan.NotTraced  `json:"not_traced"`
	durations
}

func (a planArgs) inputs() plan.Inputs {
	return plan.Inputs{Hardware: a.Hardware, Dataset: a.Dataset, Model: a.Model, Options: a.Options,
		Described: a.Described, Traced: a.Traced, NotTraced: a.NotTraced, Durations: a.Seconds, Cards: compare.Cards()}
}

func makePlan(a planArgs) (any, error) { return plan.Make(a.inputs()) }

func nextTrace(a planArgs) (any, error) { return plan.Next(a.inputs()) }

type errorArgs struct {
	Type string `json:"type"` // the exception's class name
	Text string `json:"text"`
}

func classifyError(a errorArgs) (any, error) {
	class, advice := recovery.Classify(a.Type, a.Text)
	return map[string]any{"class": class, "advice": advice}, nil
}
