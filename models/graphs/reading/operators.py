"""The operators that a stranger's file may use, all of the standard domain `ai.onnx`.

Source: the operator list of ONNX 1.23 (opset 28). Not on the list are operators that draw random
numbers (two answers to one question would differ), those of sequences, optionals, strings and
images, those of training, and those that ONNX had withdrawn by opset 11.
"""

_ELEMENTWISE = """
Abs Acos Acosh Add Asin Asinh Atan Atanh BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
Cast CastLike Ceil Clip Cos Cosh Div Erf Exp Floor Identity Log Max Mean Min Mod Mul Neg Pow
Reciprocal Round Sign Sin Sinh Sqrt Sub Sum Tan
"""
_COMPARISONS = """
And Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or Where Xor
"""
_ACTIVATIONS = """
Celu Dropout Elu Gelu HardSigmoid HardSwish Hardmax LeakyRelu LogSoftmax Mish PRelu Relu Selu Shrink
Sigmoid Softmax Softplus Softsign SwiGLU Swish Tanh ThresholdedRelu
"""
_PRODUCTS = """
Attention CausalConvWithState Conv ConvTranspose DeformConv Det Einsum GRU Gemm LSTM LinearAttention
MatMul RNN RotaryEmbedding
"""
_NORMALIZATIONS = """
BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization LpNormalization
MeanVarianceNormalization RMSNormalization
"""
_POOLING = """
AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxRoiPool MaxUnpool
RoiAlign
"""
_REDUCTIONS = """
ArgMax ArgMin CumProd CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
ReduceMin ReduceProd ReduceSum ReduceSumSquare
"""
_SHAPES = """
AffineGrid CenterCropPad Col2Im Concat Constant ConstantOfShape DepthToSpace Expand EyeLike Flatten
GridSample Pad Range Reshape Resize ReverseSequence Shape Size SpaceToDepth Split Squeeze Tile
Transpose Trilu Unsqueeze
"""
_INDEXING = """
Compress Gather GatherElements GatherND NonMaxSuppression NonZero OneHot ScatterElements ScatterND
Slice TensorScatter TopK Unique
"""
_SIGNALS = """
BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT
"""
_QUANTIZATION = """
ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul
QuantizeLinear
"""
_BODIES = """
If Loop Scan
"""

OPERATORS: frozenset[str] = frozenset(
    " ".join(
        (
            _ELEMENTWISE,
            _COMPARISONS,
            _ACTIVATIONS,
            _PRODUCTS,
            _NORMALIZATIONS,
            _POOLING,
            _REDUCTIONS,
            _SHAPES,
            _INDEXING,
            _SIGNALS,
            _QUANTIZATION,
            _BODIES,
        )
    ).split()
)
"""By the names that nodes have."""
