package main

// pythonClass is the dataclass of the Python package that a record becomes.
type pythonClass struct {
	Package, Name string
	Hints         map[string]string // of texts with few values: names of Literals
	Defaults      map[string]string // for those who make one by hand
	Mutable       bool
	Module        string // of the package that defines it by hand
	Reading       string // the class of the newest values of a record of series
}

// pythonClasses are the records that Python has as classes. One named ...Record has a subclass,
// written by hand, with what can be done with it.
var pythonClasses = map[string]pythonClass{
	"profile.BadFile":    {Package: "data", Name: "BadFile"},
	"profile.Histogram":  {Package: "data", Name: "Histogram"},
	"profile.Padding":    {Package: "data", Name: "Padding"},
	"profile.Outliers":   {Package: "data", Name: "Outliers"},
	"profile.Duplicates": {Package: "data", Name: "Duplicates"},
	"profile.Sampling":   {Package: "data", Name: "Sampling"},
	"profile.Dataset":    {Package: "data", Name: "DatasetRecord"},
	"dataset.TableRow":   {Package: "data", Name: "ManifestRow"},

	"profile.Process":  {Package: "predict", Name: "GPUProcess"},
	"profile.GPU":      {Package: "predict", Name: "GPU"},
	"profile.CPU":      {Package: "predict", Name: "CPU"},
	"profile.Memory":   {Package: "predict", Name: "Memory"},
	"profile.Hardware": {Package: "predict", Name: "HardwareRecord"},

	"profile.Model":       {Package: "predict", Name: "ModelProfile", Module: "model_profile"},
	"batching.Figures":    {Package: "predict", Name: "BatchingStrategy"},
	"batching.Bucket":     {Package: "predict", Name: "LengthBucket"},
	"batching.Comparison": {Package: "predict", Name: "BatchingRecord"},
	"batching.Longest":    {Package: "predict", Name: "LongestRecord"},
	"peak.ModuleBytes":    {Package: "predict", Name: "ModuleBytes"},
	"peak.AtPeak":         {Package: "predict", Name: "PeakMoment"},
	"peak.Phase":          {Package: "predict", Name: "PhasePeak"},
	"peak.Timeline":       {Package: "predict", Name: "Timeline"},
	"peak.OutOfMemory":    {Package: "predict", Name: "OutOfMemoryPoint"},
	"peak.Estimate":       {Package: "predict", Name: "EstimateRecord"},
	"memory.Peaks":        {Package: "predict", Name: "BatchPeak"},
	"peak.Row":            {Package: "predict", Name: "HeldRow"},
	"memory.Moment":       {Package: "predict", Name: "PredictedMoment"},

	"profile.Range":       {Package: "plan", Name: "Range"},
	"profile.Decision":    {Package: "plan", Name: "Decision", Defaults: empty("alternative", "gain")},
	"profile.Bucket":      {Package: "plan", Name: "PlannedBucket"},
	"profile.MicroBatch":  {Package: "plan", Name: "PlannedMicroBatch"},
	"profile.Device":      {Package: "plan", Name: "PlannedDevice"},
	"profile.Unguarded":   {Package: "plan", Name: "Unguarded"},
	"profile.Part":        {Package: "plan", Name: "MemoryPart"},
	"profile.StepParts":   {Package: "plan", Name: "PlannedStepParts"},
	"profile.RunParts":    {Package: "plan", Name: "PlannedRunParts"},
	"profile.Times":       {Package: "plan", Name: "PlannedTimes"},
	"profile.Arithmetic":  {Package: "plan", Name: "Arithmetic"},
	"profile.Alternative": {Package: "plan", Name: "Alternative", Defaults: empty("why")},
	"profile.Config": {Package: "plan", Name: "ConfigRecord", Mutable: true, Hints: map[string]string{
		"policy": "Policy", "preset": "Preset", "micro_batching": "MicroBatching",
		"rule": "PlannedRule | None", "length_handling": "LengthHandling",
		"attn_implementation": "AttnImplementation", "distributed": "Strategy",
		"lr_scaling": "LRScaling", "optimizer": "Optimizer"}},
	"plan.Caution": {Package: "plan", Name: "Caution", Defaults: empty("why", "remedy")},
	"plan.TraceRequest": {Package: "plan", Name: "TraceRequestRecord", Hints: map[string]string{
		"precision": "Precision", "optimizer": "Optimizer"}},
	"timing.Price":           {Package: "plan", Name: "Price"},
	"timing.StepCalibration": {Package: "plan", Name: "StepCalibration", Defaults: empty("kernels")},
	"estimate.Remedy":        {Package: "plan", Name: "Remedy"},
	"compare.Row":            {Package: "plan", Name: "GPUPlanRecord"},
	"compare.Comparison":     {Package: "plan", Name: "ComparisonRecord"},
	"compare.HandCase":       {Package: "plan", Name: "HandCase"},
	"compare.HandRow":        {Package: "plan", Name: "HandSettings"},
	"compare.HandTotal":      {Package: "plan", Name: "HandTotal"},
	"compare.Origin":         {Package: "plan", Name: "Origin"},
	"compare.RunAnswer":      {Package: "plan", Name: "RunTime"},
	"compare.StepAnswer":     {Package: "plan", Name: "StepTime"},

	"runlog.GPU":            {Package: "watch", Name: "RunLogGPU"},
	"runlog.Host":           {Package: "watch", Name: "RunLogHost"},
	"runlog.MemorySeries":   {Package: "watch", Name: "MemorySeries"},
	"runlog.GPUSeries":      {Package: "watch", Name: "GPUActivitySeries", Reading: "GPUActivity"},
	"runlog.ActivitySeries": {Package: "watch", Name: "ActivitySeries", Reading: "Activity"},
	"runlog.StepSeries":     {Package: "watch", Name: "StepSeries"},
	"runlog.Event":          {Package: "watch", Name: "Event"},
	"runlog.Alert":          {Package: "watch", Name: "Alert"},
	"runlog.Log":            {Package: "watch", Name: "RunLogRecord"},
	"monitor.GPUHistory":    {Package: "watch", Name: "GPUHistory"},
	"monitor.History":       {Package: "watch", Name: "MemoryHistory"},
	"forecast.Use":          {Package: "watch", Name: "MemoryUse"},
	"monitor.Message":       {Package: "watch", Name: "MonitorMessage"},
	"monitor.Check":         {Package: "watch", Name: "MemoryCheck"},
	"diagnosis.Finding":     {Package: "watch", Name: "Finding"},
	"view.GPUFigures":       {Package: "watch", Name: "GPUFigures"},
	"view.HostFigures":      {Package: "watch", Name: "HostFigures"},
	"view.StepFigures":      {Package: "watch", Name: "StepFigures"},
	"view.Moment":           {Package: "watch", Name: "Moment"},
	"view.Band":             {Package: "watch", Name: "Band"},
	"view.ComparedFigure":   {Package: "watch", Name: "ComparedFigure"},
	"diagnosis.Readings": {Package: "watch", Name: "Readings", Defaults: map[string]string{
		"gpu_use": "None", "gpu_memory_bytes": "None", "gpu_total_bytes": "None", "ram_bytes": "None"}},
}

// empty are fields that are "" where they are left out.
func empty(fields ...string) map[string]string {
	defaults := map[string]string{}
	for _, name := range fields {
		defaults[name] = `""`
	}
	return defaults
}
