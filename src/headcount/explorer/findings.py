"""placeholder"""
def findings_page(session, state, metric): return ""
