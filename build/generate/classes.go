package main

// pythonClass is the dataclass of the Python package that a record becomes.
type pythonClass struct {
	Room, Name string
	Hints      map[string]string // of texts with few values: names of Literals
	Defaults   map[string]string // for those who make one by hand
	Mutable    bool
	Module     string // of the room, that defines it by hand
	Reading    string // the class of the newest values of a record of series
}

// pythonClasses are the records that Python has as classes. One named ...Record has a subclass,
// written by hand, with what can be done with it.
var pythonClasses = map[string]pythonClass{
	"profile.BadFile":    {Room: "data", Name: "BadFile"},
	"profile.Histogram":  {Room: "data", Name: "Histogram"},
	"profile.Padding":    {Room: "data", Name: "Padding"},
	"profile.Outliers":   {Room: "data", Name: "Outliers"},
	"profile.Duplicates": {Room: "data", Name: "Duplicates"},
	"profile.Sampling":   {Room: "data", Name: "Sampling"},
	"profile.Dataset":    {Room: "data", Name: "DatasetRecord"},

	"profile.Process":  {Room: "predict", Name: "GPUProcess"},
	"profile.GPU":      {Room: "predict", Name: "GPU"},
	"profile.CPU":      {Room: "predict", Name: "CPU"},
	"profile.Memory":   {Room: "predict", Name: "Memory"},
	"profile.Hardware": {Room: "predict", Name: "HardwareRecord"},

	"profile.Model":       {Room: "predict", Name: "ModelProfile", Module: "model_profile"},
	"batching.Figures":    {Room: "predict", Name: "BatchingStrategy"},
	"batching.Bucket":     {Room: "predict", Name: "LengthBucket"},
	"batching.Comparison": {Room: "predict", Name: "BatchingRecord"},
	"batching.Longest":    {Room: "predict", Name: "LongestRecord"},
	"peak.ModuleBytes":    {Room: "predict", Name: "ModuleBytes"},
	"peak.AtPeak":         {Room: "predict", Name: "PeakMoment"},
	"peak.Phase":          {Room: "predict", Name: "PhasePeak"},
	"peak.Timeline":       {Room: "predict", Name: "Timeline"},
	"peak.OutOfMemory":    {Room: "predict", Name: "OutOfMemoryPoint"},
	"peak.Estimate":       {Room: "predict", Name: "EstimateRecord"},
	"memory.Peaks":        {Room: "predict", Name: "BatchPeak"},
	"peak.Row":            {Room: "predict", Name: "HeldRow"},
	"memory.Moment":       {Room: "predict", Name: "PredictedMoment"},

	"profile.Range":       {Room: "plan", Name: "Range"},
	"profile.Decision":    {Room: "plan", Name: "Decision", Defaults: empty("alternative", "gain")},
	"profile.Bucket":      {Room: "plan", Name: "PlannedBucket"},
	"profile.MicroBatch":  {Room: "plan", Name: "PlannedMicroBatch"},
	"profile.Device":      {Room: "plan", Name: "PlannedDevice"},
	"profile.Unguarded":   {Room: "plan", Name: "Unguarded"},
	"profile.Part":        {Room: "plan", Name: "MemoryPart"},
	"profile.StepParts":   {Room: "plan", Name: "PlannedStepParts"},
	"profile.RunParts":    {Room: "plan", Name: "PlannedRunParts"},
	"profile.Times":       {Room: "plan", Name: "PlannedTimes"},
	"profile.Arithmetic":  {Room: "plan", Name: "Arithmetic"},
	"profile.Alternative": {Room: "plan", Name: "Alternative", Defaults: empty("why")},
	"profile.Config": {Room: "plan", Name: "ConfigRecord", Mutable: true, Hints: map[string]string{
		"policy": "Policy", "preset": "Preset", "micro_batching": "MicroBatching",
		"rule": "PlannedRule | None", "length_handling": "LengthHandling",
		"attn_implementation": "AttnImplementation", "distributed": "Strategy",
		"lr_scaling": "LRScaling", "optimizer": "Optimizer"}},
	"plan.Caution": {Room: "plan", Name: "Caution", Defaults: empty("why", "remedy")},
	"plan.TraceRequest": {Room: "plan", Name: "TraceRequestRecord", Hints: map[string]string{
		"precision": "Precision", "optimizer": "Optimizer"}},
	"timing.Price":           {Room: "plan", Name: "Price"},
	"timing.StepCalibration": {Room: "plan", Name: "StepCalibration", Defaults: empty("kernels")},
	"estimate.Remedy":        {Room: "plan", Name: "Remedy"},
	"compare.Row":            {Room: "plan", Name: "GPUPlanRecord"},
	"compare.Comparison":     {Room: "plan", Name: "ComparisonRecord"},
	"compare.HandCase":       {Room: "plan", Name: "HandCase"},
	"compare.HandRow":        {Room: "plan", Name: "HandSettings"},
	"compare.HandTotal":      {Room: "plan", Name: "HandTotal"},
	"compare.Origin":         {Room: "plan", Name: "Origin"},
	"compare.RunAnswer":      {Room: "plan", Name: "RunTime"},
	"compare.StepAnswer":     {Room: "plan", Name: "StepTime"},

	"runlog.GPU":            {Room: "watch", Name: "RunLogGPU"},
	"runlog.Host":           {Room: "watch", Name: "RunLogHost"},
	"runlog.MemorySeries":   {Room: "watch", Name: "MemorySeries"},
	"runlog.GPUSeries":      {Room: "watch", Name: "GPUActivitySeries", Reading: "GPUActivity"},
	"runlog.ActivitySeries": {Room: "watch", Name: "ActivitySeries", Reading: "Activity"},
	"runlog.StepSeries":     {Room: "watch", Name: "StepSeries"},
	"runlog.Event":          {Room: "watch", Name: "Event"},
	"runlog.Alert":          {Room: "watch", Name: "Alert"},
	"runlog.Log":            {Room: "watch", Name: "RunLogRecord"},
	"monitor.GPUHistory":    {Room: "watch", Name: "GPUHistory"},
	"monitor.History":       {Room: "watch", Name: "MemoryHistory"},
	"forecast.Use":          {Room: "watch", Name: "MemoryUse"},
	"monitor.Message":       {Room: "watch", Name: "MonitorMessage"},
	"monitor.Check":         {Room: "watch", Name: "MemoryCheck"},
	"diagnosis.Finding":     {Room: "watch", Name: "Finding"},
	"view.GPUFigures":       {Room: "watch", Name: "GPUFigures"},
	"view.HostFigures":      {Room: "watch", Name: "HostFigures"},
	"view.StepFigures":      {Room: "watch", Name: "StepFigures"},
	"view.Moment":           {Room: "watch", Name: "Moment"},
	"view.Band":             {Room: "watch", Name: "Band"},
	"view.ComparedFigure":   {Room: "watch", Name: "ComparedFigure"},
	"diagnosis.Readings": {Room: "watch", Name: "Readings", Defaults: map[string]string{
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
