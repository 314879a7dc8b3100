package main

// pythonClass is the dataclass of the Python package that a record becomes.
type pythonClass struct {
	Room, Name string
	Hints      map[string]string // of texts with few values: names in _core/checks.py
	Defaults   map[string]string // for those who make one by hand
	Mutable    bool
	Module     string // of the room, that defines it by hand
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
	"memory.Spread":       {Room: "predict", Name: "Spread"},
	"memory.Peaks":        {Room: "predict", Name: "BatchPeak"},
	"memory.OfSeed":       {Room: "predict", Name: "SeedPeak"},
	"memory.RunEstimate":  {Room: "predict", Name: "RunEstimateRecord"},
}
