from .widget import RegisterWidget as RegisterWidget
