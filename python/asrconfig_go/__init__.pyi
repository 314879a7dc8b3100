"""Types of the public names; where each is looked up at run time is told in __init__.py."""

from ._errors import (
    AsrConfigError as AsrConfigError,
    CorruptFileError as CorruptFileError,
    EmptyDatasetError as EmptyDatasetError,
    ForkedProcessError as ForkedProcessError,
    InfeasiblePlanError as InfeasiblePlanError,
    InternalError as InternalError,
    InvalidArgumentError as InvalidArgumentError,
    LibraryError as LibraryError,
    LibraryNotLoadedError as LibraryNotLoadedError,
    NotFoundError as NotFoundError,
    PoisonedLibraryError as PoisonedLibraryError,
    ScanCancelledError as ScanCancelledError,
    UnsupportedError as UnsupportedError,
    VersionMismatchError as VersionMismatchError,
)
from .applied import Applied as Applied, AppliedSetting as AppliedSetting, TooLateWarning as TooLateWarning
from .batching import (
    BatchingReport as BatchingReport,
    BatchingStrategy as BatchingStrategy,
    BatchingWarning as BatchingWarning,
    LengthBucket as LengthBucket,
    LongestClips as LongestClips,
    StepSampler as StepSampler,
    compare_batching as compare_batching,
    cost_of_longest as cost_of_longest,
    cut_by_memory as cut_by_memory,
    memory_table as memory_table,
    use_batches as use_batches,
    with_batches as with_batches,
)
from .bench import BenchmarkResult as BenchmarkResult, benchmark_training as benchmark_training
from .callback import AdaptiveMemoryCallback as AdaptiveMemoryCallback
from .compare import (
    compare_gpus as compare_gpus,
    estimate_step_time as estimate_step_time,
    gpu_prices as gpu_prices,
    largest_models as largest_models,
)
from .compare_records import Comparison as Comparison, LargestModels as LargestModels, StepTime as StepTime
from .config import Decision as Decision, TrainingConfig as TrainingConfig
from .dataset import Clip as Clip, DatasetProfile as DatasetProfile, ScanResult as ScanResult, scan_audio as scan_audio
from .explain import Caution as Caution, Explanation as Explanation
from .guard.search import BatchSizeSearch as BatchSizeSearch, find_max_batch_size as find_max_batch_size
from .hardware import GPU as GPU, HardwareProfile as HardwareProfile
from .labels import InfeasiblePair as InfeasiblePair, LabelReport as LabelReport, check_labels as check_labels
from .lengths import BadAudioWarning as BadAudioWarning, add_durations as add_durations
from .loader_rate import LoaderRate as LoaderRate, measure_loader as measure_loader
from .manager import ASRConfigManager as ASRConfigManager
from .memory import (
    Calibration as Calibration,
    EstimatorWarning as EstimatorWarning,
    EvaluationMemory as EvaluationMemory,
    MemoryEstimate as MemoryEstimate,
    MemoryModel as MemoryModel,
    RunEstimate as RunEstimate,
    StepsEstimate as StepsEstimate,
    calibrate as calibrate,
    estimate_memory as estimate_memory,
)
from .model import ModelProfile as ModelProfile, known_models as known_models, profile_model as profile_model
from .monitor import MemoryMonitor as MemoryMonitor
from .optimal import create_optimal_config as create_optimal_config
from .plan_options import PlanOptions as PlanOptions
from .prepare import prepare_model as prepare_model
from .recipe import (
    FineTuneResult as FineTuneResult,
    SpeechData as SpeechData,
    fine_tune as fine_tune,
    load_speech as load_speech,
)
from .selection import Selection as Selection, clip_pieces as clip_pieces, select_clips as select_clips
from .step_calibration import find_step_calibration as find_step_calibration
from .training_arguments import UnsupportedSettingWarning as UnsupportedSettingWarning
from .training_report import GuardEvent as GuardEvent, Restart as Restart, TrainingReport as TrainingReport
from .watching import AlertNews as AlertNews, lightning_callback as lightning_callback

__version__: str
